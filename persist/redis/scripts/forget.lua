-- Forget: token. It leaves a note that it has happened, for a later try.
local o = load(OP, hash)
if not o or o.token ~= ARGV[5] or o.held > now then return {'other'} end
remove(o)
call('SET', TURN, 'done', 'PX', 600000)
return {'done'}
