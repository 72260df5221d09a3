-- Mark: token, parked, notBefore, p.
local o, why = holding(ARGV[5])
if not o then return {why} end
o.parked, o.notBefore, o.held, o.owner = ARGV[6], tonumber(ARGV[7]), now + lease, turn
place(o, o.keepBody)
save(o, 'p', ARGV[8])
return {'done'}
