-- What all scripts share that are one call's turn: each try of a call has its turn's name, and the number of tries
-- before it whose answers were lost. One that arrives after a later one, or after the call was withdrawn, does nothing.
local turn, lost, lease, hash = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local mark = call('GET', TURN)
if mark == 'done' then return {'done'} end
if mark and tonumber(mark) > lost then return {'void'} end
if lost > 0 then
  call('DEL', TURN) -- takes no memory: see place
  call('SET', TURN, lost, 'PX', 3600000)
end

-- grow returns a token above all before it: also if the server has lost its data since, or its clock was set back.
local function grow()
  local token = num(math.max(tonumber(call('GET', TOKEN) or 0) + 1, now))
  call('SET', TOKEN, token)
  return token
end

-- take gives o to this turn.
local function take(o, owner)
  o.held, o.owner = now + lease, owner
  place(o, o.keepBody)
  o.token = grow()
  save(o)
end

-- late: a later call of the same store has changed o since this one was made, whose turn comes before it.
local function late(o)
  return string.sub(o.owner, 1, 16) == string.sub(turn, 1, 16) and string.sub(o.owner, 17, 32) > string.sub(turn, 17)
end

-- holding returns the record that a claim holds, or why it does not. A turn that ends the claim may have done so
-- before. One that comes after a later change under this claim must not undo that.
local function holding(token, ends)
  local o = load(OP, hash)
  if not o then return nil, 'gone' end
  if ends and o.owner == turn then return nil, 'done' end
  if o.token ~= token or o.held <= now then return nil, 'lost' end
  if late(o) then return nil, 'void' end
  return o
end
