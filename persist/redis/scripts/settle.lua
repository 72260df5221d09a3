-- Settle: token, state, owed, keepBody, keepName, e, a.
local o, why = holding(ARGV[5], true)
if not o then return {why} end
local owed, keepBody, keepName = ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])
local whole = owed == '1' or keepBody > now
if not whole and keepName <= now then
  remove(o)
  return {'done'}
end
local was, member = o.state, o.created .. hash
o.state, o.owed, o.keepBody, o.keepName, o.held, o.owner = ARGV[6], owed, keepBody, keepName, 0, turn
if whole then
  place(o, keepBody)
  if was == '0' then
    call('ZREM', OPEN, member)
    call('ZADD', OVER, 0, member)
  end
  save(o, 'e', ARGV[10], 'a', ARGV[11])
else
  place(o, keepName)
  call('ZREM', was == '0' and OPEN or OVER, member)
  call('HDEL', OP, 'r', 'p', 'a')
  save(o, 'e', ARGV[10])
end
return {'done'}
