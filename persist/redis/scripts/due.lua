-- ClaimDue: n, bytes. Here hash is what the keys of records begin with.
local prefix, n, bytes = hash, tonumber(ARGV[5]), tonumber(ARGV[6])
local late = call('ZRANGEBYSCORE', WAIT, '-inf', num(now), 'LIMIT', 0, 500)
if #late > 0 then
  call('ZREM', WAIT, unpack(late))
  local scored = {}
  for i, member in ipairs(late) do scored[2 * i - 1], scored[2 * i] = 0, member end
  call('ZADD', READY, unpack(scored))
end
if #late == 500 then return {'more'} end -- the oldest may be among the rest

local reply, size, seen = {'ok'}, 0, 0
while #reply <= n and size < bytes do
  local members = call('ZRANGEBYLEX', READY, '-', '+', 'LIMIT', 0, n + 1 - #reply)
  if #members == 0 then break end
  if seen > 500 then
    if #reply == 1 then return {'more'} end
    break
  end
  for _, member in ipairs(members) do
    if size >= bytes then break end
    local h = string.sub(member, 17)
    local ok, o = pcall(load, prefix .. h, h)
    seen = seen + 1
    if not ok then -- written by a newer version: it keeps nobody from the others
      call('ZREM', READY, member)
      call('ZADD', WAIT, num(now + lease), member)
    elseif not o or o.created .. h ~= member then
      forgo(member)
    elseif not recovers(o) or due(o) > now then -- the clock was set back
      place(o, o.keepBody)
    else
      take(o, turn)
      local r = show('taken', o)
      for i = 4, 8 do size = size + #(r[i] or '') end
      reply[#reply + 1] = r
    end
  end
end
return reply
