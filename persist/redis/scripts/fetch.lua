-- List, second step: the records of the keys from the seventh on, as many as fit, but one at least: bytes, states, how
-- their names begin, and the members by which they were found. One that is not selected, or not the member's any more,
-- is a status without a record; one that cannot be read, a status and why.
local bytes, states, scope = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local reply, size = {}, 0
for i = 7, #KEYS do
  local member = ARGV[i - 3]
  local ok, o = pcall(load, KEYS[i], string.sub(member, 17))
  local none = not ok or not o or o.created .. o.hash ~= member or bare(o) or not string.find(states, o.state, 1, true)
  if not none and scope ~= '' then
    none = string.sub(call('HGET', KEYS[i], 'n'), 1, #scope) ~= scope
  end
  if not ok then -- damaged, or written by a newer version: the others are told all the same
    reply[#reply + 1] = {'bad', tostring(o)}
  elseif none then
    reply[#reply + 1] = {'none'}
  else
    size = size + call('HSTRLEN', KEYS[i], 'r') + call('HSTRLEN', KEYS[i], 'a')
    if size > bytes and #reply > 0 then break end
    reply[#reply + 1] = show('known', o)
  end
end
return reply
