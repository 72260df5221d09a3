-- Replace: token, created, parked, notBefore, n, r, p.
local o, why = holding(ARGV[5])
if not o then return {why} end
local old = o.created .. hash
call('ZREM', OVER, old)
if o.created ~= ARGV[6] then forgo(old) end
o.state, o.owed, o.created, o.parked, o.notBefore = '0', '0', ARGV[6], ARGV[7], tonumber(ARGV[8])
o.keepBody, o.keepName, o.held, o.owner = 0, 0, now + lease, turn
call('ZADD', OPEN, 0, o.created .. hash)
place(o)
call('HDEL', OP, 'e', 'a')
save(o, 'n', ARGV[9], 'r', ARGV[10], 'p', ARGV[11])
return {'done'}
