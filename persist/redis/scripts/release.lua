-- Release: token.
local o, why = holding(ARGV[5], true)
if not o then return {why} end
o.held, o.owner = 0, turn
if gone(o) then
  remove(o)
else
  place(o, o.keepBody)
  save(o)
end
return {'done'}
