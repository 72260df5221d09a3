-- Forget. It leaves a note that it has happened: a later try must not forget what has begun anew.
local o = load(OP, hash)
if not o then return {'none'} end
if gone(o) then
  remove(o)
  return {'none'}
end
if o.held > now then return {'busy'} end
remove(o)
call('SET', TURN, 'done', 'PX', 600000)
return {'done'}
