// The ledger as a page: what the server saw of each command, attempt by attempt. No library, no build step.
const $ = (id) => document.getElementById(id);
const open = new Set(); // commands whose attempts are shown
let paused = false;
let commands = [];
let shown = "";

const node = (tag, className, ...children) => {
  const n = document.createElement(tag);
  if (className) n.className = className;
  n.append(...children);
  return n;
};

async function ask(method, path, body) {
  const resp = await fetch(path, { method, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await resp.text();
  const value = text ? JSON.parse(text) : null;
  if (!resp.ok) throw new Error(value?.message ?? `${resp.status}`);
  return value;
}

async function refresh() {
  try {
    const state = await ask("GET", "/_mock/state?last=500");
    const t = state.totals;
    const figures = { commands: t.commands, effects: t.effects, duplicates: t.duplicates, keys: t.keys,
      operations: t.operations, replays: t.replays, lost: t.lost, remembered: t.live };
    for (const [id, n] of Object.entries(figures)) $(id).textContent = n.toLocaleString("en");
    $("duplicates-box").classList.toggle("bad", t.duplicates > 0);
    $("profile").textContent = `profile ${state.profile}`;
    $("clock").textContent = state.now.replace("T", " ").slice(0, 19);
    $("clock").dateTime = state.now;
    $("live").textContent = "live";
    $("live").className = "";
    commands = state.commands.reverse(); // the newest first
    showFaults(state.faults);
    show();
  } catch (err) {
    $("live").textContent = `no connection: ${err.message}`;
    $("live").className = "bad";
  }
}

const chosen = {
  all: () => true,
  many: (c) => c.requests.length > 1,
  duplicates: (c) => c.effects > 1,
  open: (c) => !c.final,
  faults: (c) => c.requests.some((r) => r.fault),
};

function show() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (c) => {
    const text = [c.name, ...c.requests.flatMap((r) => [r.key, r.status, r.fault ?? ""])].join(" ").toLowerCase();
    return words.every((w) => text.includes(w));
  };
  const list = commands.filter(chosen[$("which").value]).filter(fits);
  $("empty").hidden = commands.length > 0;
  $("none").hidden = commands.length === 0 || list.length > 0;
  const now = JSON.stringify(list);
  if (now === shown) return; // what has not changed keeps its focus and its selection
  shown = now;
  const focused = document.activeElement?.closest?.(".command")?.dataset.first;
  $("list").replaceChildren(...list.map(command));
  if (focused) document.querySelector(`.command[data-first="${focused}"] summary`)?.focus();
}

function command(c) {
  const first = c.requests[0];
  const details = node("details", "command");
  details.dataset.first = first.n;
  details.open = open.has(first.n);
  details.addEventListener("toggle", () => (details.open ? open.add(first.n) : open.delete(first.n)));
  const n = c.requests.length;
  const keys = new Set(c.requests.map((r) => r.key));
  const key = keys.size > 1 ? `${keys.size} keys` : first.key ? `key ${first.key}` : "no key";
  const name = node("span", "name", node("b", "", c.operation || first.key || "without a key"),
    node("small", "", `${first.method} ${first.path} · ${n} attempt${n > 1 ? "s" : ""}`),
    ...(c.operation ? [node("small", "", ` · ${key}`)] : []));
  const summary = node("summary", "", name, track(c.requests), node("span", `verdict ${verdict(c)[1]}`, verdict(c)[0]));
  details.append(summary, node("div", "attempts", table(c.requests)));
  return details;
}

function verdict(c) {
  if (c.effects > 1) return [`${c.effects} effects`, "badly"];
  if (!c.final) return [c.effects ? "effect, no final answer" : "no final answer", "warn"];
  return c.effects ? ["1 effect", "good"] : ["refused", "calm"];
}

const answer = (r) => (r.status ? r.status + (r.lost ? " cut off" : "") : r.end ? "no answer" : "running");

function tone(r) {
  if (r.lost || r.status >= 500) return "badly";
  if (!r.end || r.status === 202) return "warn";
  if (r.status >= 400) return "calm";
  return "good";
}

function track(requests) {
  const at = (t) => Date.parse(t);
  const start = at(requests[0].at);
  const end = Math.max(...requests.map((r) => at(r.end ?? r.at)));
  const span = Math.max(end - start, 1);
  // Attempts stand where their time is, but never so close that a label covers the next.
  const gap = Math.min(13, 87 / Math.max(requests.length - 1, 1));
  const left = requests.map((r) => ((at(r.at) - start) / span) * 87);
  for (let i = 1; i < left.length; i++) left[i] = Math.max(left[i], left[i - 1] + gap);
  for (let i = left.length - 1, most = 87; i >= 0; i--, most -= gap) left[i] = Math.min(left[i], most);
  const bars = requests.map((r, i) => {
    const label = (r.status ? `${r.status}${r.lost ? " cut" : ""}` : r.end ? "lost" : "…") + (r.effect ? " ◆" : "");
    const bar = node("span", `bar ${tone(r)}`, node("i", "", label));
    bar.style.left = `${left[i]}%`;
    bar.style.width = `${((at(r.end ?? r.at) - at(r.at)) / span) * 8}%`;
    return bar;
  });
  const t = node("span", "track", ...bars);
  t.setAttribute("role", "img");
  t.setAttribute("aria-label", requests.map((r, i) => `attempt ${i + 1}: ${answer(r)}${r.effect ? ", effect" : ""}`).join("; "));
  t.title = "◆ took effect";
  return t;
}

function table(requests) {
  const start = Date.parse(requests[0].at);
  const head = node("tr", "", ...["#", "after", "key", "answer", "what happened", "body"].map((h) => node("th", "", h)));
  const rows = requests.map((r) => {
    const what = [r.effect && "EFFECT", r.replayed && "replayed", r.hungUp && "client left", r.fault && `fault ${r.fault}`,
      r.seenKey !== r.key && r.end && r.method === "POST" && `the server saw ${r.seenKey ? "key " + r.seenKey : "no key"}`].filter(Boolean).join(", ");
    const cells = [`#${r.n}`, `+${((Date.parse(r.at) - start) / 1000).toFixed(3)} s`, r.key || "none", answer(r), what, r.body.slice(0, 200)];
    const tr = node("tr", "", ...cells.map((c) => node("td", "", String(c))));
    tr.children[3].className = tone(r);
    return tr;
  });
  return node("table", "", node("thead", "", head), node("tbody", "", ...rows));
}

function showFaults(faults) {
  $("faults-count").textContent = faults.length ? `(${faults.length})` : "(none)";
  $("faults").replaceChildren(...faults.map((f) => {
    const limit = f.fault.times ? ` of ${f.fault.times}` : "";
    return node("li", "", node("code", "", f.fault.match || "every request"), ` ${f.text}, fired ${f.fired}${limit} times`);
  }));
}

const act = async (...args) => {
  await ask(...args);
  await refresh();
};

$("filter").addEventListener("input", show);
$("which").addEventListener("change", show);
$("tools").addEventListener("submit", (e) => e.preventDefault());
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", paused);
});
$("reset").addEventListener("click", () => act("POST", "/_mock/reset"));
for (const b of document.querySelectorAll("[data-advance]")) {
  b.addEventListener("click", () => act("POST", "/_mock/clock", { advance: b.dataset.advance }));
}
$("clear-faults").addEventListener("click", () => act("DELETE", "/_mock/faults"));
$("new-fault").addEventListener("submit", async (e) => {
  e.preventDefault();
  const f = Object.fromEntries(new FormData(e.target));
  try {
    const what = /^[[{"]/.test(f.do) ? JSON.parse(f.do) : f.do;
    await act("POST", "/_mock/faults", { match: f.match, when: f.when, do: what, times: Number(f.times) });
    $("fault-error").textContent = "";
  } catch (err) {
    $("fault-error").textContent = err.message;
  }
});
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "Escape") document.activeElement.blur();
  if (e.target.matches("input, select")) return;
  const rows = [...document.querySelectorAll(".command summary")];
  const at = rows.indexOf(document.activeElement);
  if (e.key === "/") {
    e.preventDefault();
    $("filter").focus();
  } else if (e.key === "p") $("pause").click();
  else if (e.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (e.key === "k") rows[Math.max(at - 1, 0)]?.focus();
});

$("example").textContent = `curl -i ${location.origin}/v1/payments \\
  -H 'Idempotency-Key: my-first-key' -H 'Content-Type: application/json' \\
  -d '{"amount": 100, "currency": "EUR", "orderRef": "order-1"}'`;
await refresh();
setInterval(() => paused || document.hidden || refresh(), 1000);
