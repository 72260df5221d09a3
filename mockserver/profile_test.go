package mockserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/mockserver"
)

const (
	uuid1 = "7f2c3e2e-3b5b-4eaa-9c6f-1d8d9f8d3c12"
	uuid2 = "0b6f4c1d-6f0b-4b8e-8f43-0a1a8f2f7e55"
)

// keyed makes a request that carries a key as a profile wants it.
func keyed(p mockserver.Profile, key, amount string) *http.Request {
	url, body, header := pay, `{"amount":`+amount+`}`, http.Header{}
	if key != "" {
		switch p.Carrier.In {
		case "body":
			body = `{"amount":` + amount + `,"` + p.Carrier.Name + `":"` + key + `"}`
		case "query":
			url += "?" + p.Carrier.Name + "=" + key
		case "form":
			body = "amount=" + amount + "&" + p.Carrier.Name + "=" + key
			header.Set("Content-Type", "application/x-www-form-urlencoded")
		default:
			name := p.Carrier.Name
			if name == "" {
				name = "Idempotency-Key"
			}
			if p.Carrier.Quoted {
				key = `"` + key + `"`
			}
			header.Set(name, key)
			if p.Carrier.Beside != "" {
				header.Set(p.Carrier.Beside, "Tue, 15 Nov 1994 12:45:26 GMT")
			}
		}
	}
	r, _ := http.NewRequest("POST", url, strings.NewReader(body))
	r.Header = header
	r.GetBody = nil // or net/http would send it again by itself
	return r
}

// TestProfiles asks each profile the same questions.
func TestProfiles(t *testing.T) {
	type asks struct {
		replay, mismatch, running, missing, failed int // failed: a repeat of what was refused with a 402
		says                                       string
	}
	want := map[string]asks{
		"default":             {201, 409, 202, 201, 402, "IdempotencyKeyConflict"},
		"ietf":                {201, 422, 409, 400, 402, "problems/key-reused"},
		"stripe-v1":           {201, 400, 409, 201, 402, "idempotency_error"},
		"paypal":              {200, 422, 409, 201, 402, "PAYPAL_REQUEST_ID_PREVIOUSLY_USED"},
		"adyen":               {201, 409, 422, 201, 402, ""},
		"square":              {201, 400, 202, 201, 402, "IDEMPOTENCY_KEY_REUSED"},
		"yookassa":            {201, 409, 202, 400, 402, ""},
		"tbank-acquiring":     {200, 409, 202, 201, 402, ""},
		"mollie":              {201, 409, 202, 201, 402, ""},
		"checkout-com":        {201, 409, 409, 201, 402, ""},
		"gocardless":          {409, 409, 202, 201, 402, `"conflicting_resource_id":"pay_000001"`},
		"wise":                {201, 409, 202, 400, 402, ""},
		"modern-treasury":     {201, 201, 409, 201, 402, ""},
		"increase":            {201, 409, 202, 201, 402, `"resource_id":"pay_000001"`},
		"dwolla":              {201, 409, 409, 201, 402, ""},
		"revolut-business":    {400, 409, 429, 400, 400, ""},
		"aws":                 {200, 400, 202, 201, 402, "IdempotentParameterMismatch"},
		"google-cloud":        {201, 409, 202, 201, 402, ""},
		"azure-repeatability": {201, 400, 202, 201, 402, ""},
		"zalando":             {201, 400, 202, 201, 402, ""},
	}
	assert.Len(t, want, len(mockserver.Profiles()))
	for _, p := range mockserver.Profiles() {
		t.Run(p.Name, func(t *testing.T) {
			inMemory(t, mockserver.Config{Profile: p}, func(t *testing.T, e *mockserver.Engine, c *mockserver.Memory) {
				ask := func(key, amount string) answer { return exchange(c, keyed(p, key, amount)) }
				first := ask(uuid1, "1")
				require.Equal(t, 201, first.status)
				replay := ask(uuid1, "1")
				mismatch := ask(uuid1, "2")
				missing := ask("", "1")
				ask(uuid2, "402")
				failed := ask(uuid2, "402")
				e.Fault(mockserver.Fault{Do: mockserver.CrashReserved(0), Times: 1})
				key := "3f2c3e2e-3b5b-4eaa-9c6f-1d8d9f8d3c12"
				require.Error(t, ask(key, "1").err)
				running := ask(key, "1")
				w := want[p.Name]
				assert.Equal(t, w, asks{replay.status, mismatch.status, running.status, missing.status, failed.status, w.says})
				assert.Contains(t, mismatch.body, w.says)
				if w.replay == 201 {
					assert.Equal(t, first.body, replay.body)
				}
			})
		})
	}
}

func TestProfilesAreData(t *testing.T) {
	for _, p := range mockserver.Profiles() {
		b, err := json.Marshal(p)
		require.NoError(t, err)
		back, err := mockserver.ReadProfile(strings.NewReader(string(b)))
		require.NoError(t, err)
		assert.Equal(t, p, back)
		named, err := mockserver.ProfileByName(p.Name)
		require.NoError(t, err)
		assert.Equal(t, p, named)
	}
	for text, says := range map[string]string{
		`{"ttl":"ages"}`: "invalid duration", `{"label":"x"}`: "unknown field", `{"format":"("}`: "format",
	} {
		_, err := mockserver.ReadProfile(strings.NewReader(text))
		assert.ErrorContains(t, err, says)
	}
	_, err := mockserver.ProfileByName("nobody")
	assert.ErrorContains(t, err, "stripe-v1")
}

func TestCarriersAndStrictness(t *testing.T) {
	change := func(f func(*mockserver.Profile)) mockserver.Profile {
		p := mockserver.Default
		f(&p)
		return p
	}
	header := func(name, value string) *http.Request {
		r := keyed(mockserver.Default, "", "1")
		if name != "" {
			r.Header.Add(name, value)
		}
		return r
	}
	twice := header("Idempotency-Key", "a")
	twice.Header.Add("Idempotency-Key", "b")
	form := change(func(p *mockserver.Profile) { p.Carrier = mockserver.FormField("request_key") })
	pointer := change(func(p *mockserver.Profile) { p.Carrier = mockserver.BodyMember("/meta/id") })
	inMeta, _ := http.NewRequest("POST", pay, strings.NewReader(`{"amount":1,"meta":{"id":7}}`))
	for _, c := range []struct {
		name    string
		profile mockserver.Profile
		request *http.Request
		status  int
		key     string
	}{
		{"bare", mockserver.Default, header("idempotency-key", " a b "), 201, "a b"},
		{"two headers", mockserver.Default, twice, 400, "a, b"},
		{"too long", mockserver.Default, header("Idempotency-Key", strings.Repeat("x", 256)), 400, strings.Repeat("x", 256)},
		{"long enough", mockserver.Default, header("Idempotency-Key", strings.Repeat("x", 255)), 201, strings.Repeat("x", 255)},
		{"optional", mockserver.Default, header("", ""), 201, ""},
		{"required", change(func(p *mockserver.Profile) { p.Require = true }), header("", ""), 400, ""},
		{"no UUID", change(func(p *mockserver.Profile) { p.UUID = true }), header("Idempotency-Key", "abc"), 400, "abc"},
		{"a UUID", change(func(p *mockserver.Profile) { p.UUID = true }), header("Idempotency-Key", uuid1), 201, uuid1},
		{"quotes are part of a bare key", mockserver.Default, header("Idempotency-Key", `"a"`), 201, `"a"`},
		{"lenient about quotes", change(func(p *mockserver.Profile) { p.Lenient = true }), header("Idempotency-Key", `"a"`), 201, "a"},
		{"quoted", mockserver.IETF, header("Idempotency-Key", `"a\"b"`), 201, `a"b`},
		{"not quoted", mockserver.IETF, header("Idempotency-Key", "a"), 400, "a"},
		{"form", form, keyed(form, "f", "1"), 201, "f"},
		{"query", change(func(p *mockserver.Profile) { p.Carrier = mockserver.QueryParam("k") }),
			keyed(mockserver.Profile{Carrier: mockserver.QueryParam("k")}, "q", "1"), 201, "q"},
		{"body pointer", pointer, inMeta, 201, "7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, mockserver.Config{Profile: c.profile}, func(t *testing.T, e *mockserver.Engine, tr *mockserver.Memory) {
				assert.Equal(t, c.status, exchange(tr, c.request).status)
				assert.Equal(t, c.key, e.Requests()[0].Key)
			})
		})
	}
}

func TestWrapGivesKeysToAnyHandler(t *testing.T) {
	n := 0
	e := mockserver.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		if r.Method == http.MethodPut {
			mockserver.NoEffect(r)
		}
		w.Header().Set("X-Run", strings.Repeat("i", n))
		_, _ = w.Write([]byte("done"))
	}), mockserver.Default)
	defer e.Close()
	c := e.Transport()
	for range 2 {
		a := send(t, c, "POST", "http://x/any", "k", "not json")
		assert.Equal(t, []any{200, "done", "i"}, []any{a.status, a.body, a.header.Get("X-Run")})
	}
	send(t, c, "PUT", "http://x/any", "", "")
	send(t, c, "GET", "http://x/", "", "")
	assert.Equal(t, []int{3, 1}, []int{n, e.Effects()})
}

// TestWhatMustBeTheSame changes one thing of a request under a key that is known.
func TestWhatMustBeTheSame(t *testing.T) {
	profile := func(f func(*mockserver.Profile)) mockserver.Profile {
		p := mockserver.Default
		f(&p)
		return p
	}
	account := profile(func(p *mockserver.Profile) { p.Account = true })
	beside := profile(func(p *mockserver.Profile) {
		p.Carrier.In, p.Carrier.Name, p.Carrier.Beside = "header", "Idempotency-Key", "First-Sent"
	})
	type request struct{ method, url, body, beside string }
	first := request{"POST", pay, `{"amount":1,"currency":"EUR"}`, "then"}
	for _, c := range []struct {
		name    string
		profile mockserver.Profile
		change  func(*request)
		status  int
		replay  bool
	}{
		{"nothing", mockserver.Default, func(*request) {}, 201, true},
		{"order of members", mockserver.Default, func(r *request) { r.body = `{"currency":"EUR","amount":1}` }, 201, true},
		{"order of members, compared raw", profile(func(p *mockserver.Profile) { p.RawBody = true }),
			func(r *request) { r.body = `{"currency":"EUR","amount":1}` }, 409, false},
		{"number as written", mockserver.Default, func(r *request) { r.body = `{"currency":"EUR","amount":1.0}` }, 409, false},
		{"body, and nobody compares", profile(func(p *mockserver.Profile) { p.AnyPayload = true }), func(r *request) { r.body = `{}` }, 201, true},
		{"query", mockserver.Default, func(r *request) { r.url += "?x=1" }, 409, false},
		{"path", mockserver.Default, func(r *request) { r.url = "http://api.test/v1/orders" }, 201, false},
		{"path, in an account", account, func(r *request) { r.url = "http://api.test/v1/orders" }, 409, false},
		{"nothing, in an account", account, func(*request) {}, 201, true},
		{"method, in an account", account, func(r *request) { r.method = "PUT" }, 409, false},
		{"second header", beside, func(r *request) { r.beside = "now" }, 409, false},
		{"nothing, with a second header", beside, func(*request) {}, 201, true},
		{"no second header", beside, func(r *request) { r.beside = "" }, 400, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, mockserver.Config{Profile: c.profile}, func(t *testing.T, _ *mockserver.Engine, tr *mockserver.Memory) {
				ask := func(r request) answer {
					if r.beside == "" {
						return send(t, tr, r.method, r.url, "k", r.body)
					}
					return send(t, tr, r.method, r.url, "k", r.body, "First-Sent", r.beside)
				}
				require.Equal(t, 201, ask(first).status)
				second := first
				c.change(&second)
				got := ask(second)
				assert.Equal(t, c.status, got.status)
				assert.Equal(t, c.replay, got.header.Get("Idempotent-Replayed") != "")
			})
		})
	}
}
