-- Takes back a Begin whose answer was lost, and keeps it from happening if it has not arrived yet.
local turn, hash = ARGV[1], ARGV[4]
call('DEL', TURN) -- takes no memory: see place
call('SET', TURN, '9007199254740991', 'PX', 3600000)
local o = load(OP, hash)
if o and o.owner == turn .. '+' then
  remove(o)
elseif o and o.owner == turn then
  o.held = 0
  place(o, o.keepBody)
  save(o)
end
return {'done'}
