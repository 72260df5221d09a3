-- Begin: created, parked, notBefore, n, r, p. The owner of what a turn has made ends in +.
local o = load(OP, hash)
if o and gone(o) then
  remove(o)
  o = nil
end
if not o then
  o = {key = OP, hash = hash, state = '0', owed = '0', parked = ARGV[6], notBefore = tonumber(ARGV[7]), keepBody = 0,
    keepName = 0, created = ARGV[5], held = now + lease, owner = turn .. '+'}
  o.token = grow() -- first: if memory is full it is refused
  call('ZADD', OPEN, 0, o.created .. hash)
  if recovers(o) then call('ZADD', WAIT, num(due(o)), o.created .. hash) end
  save(o, 'n', ARGV[8], 'r', ARGV[9], 'p', ARGV[10])
  return {'new', o.token}
end
if o.owner == turn .. '+' then -- a try before has made it
  take(o, turn .. '+')
  return show('again', o)
end
if o.state == '0' and (o.held <= now or o.owner == turn) then
  take(o, turn)
  return show('taken', o)
end
return show('known', o)
