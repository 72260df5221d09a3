-- Forget, first step: what it may remove. What nobody may know of any more goes at once.
local o = load(OP, ARGV[4])
if not o then return {'none'} end
if gone(o) then
  remove(o)
  return {'none'}
end
if o.held > now then return {'busy'} end
return {'seen', o.token}
