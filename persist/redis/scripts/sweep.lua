-- Retention: what keys begin with, n.
local prefix = ARGV[1]
local members = call('ZRANGEBYSCORE', KEEP, '-inf', num(now), 'LIMIT', 0, ARGV[2])
call('ZREM', KEEP, '') -- takes no memory: see place
for _, member in ipairs(members) do
  local h = string.sub(member, 17)
  local key = prefix .. h
  local ok, o = pcall(load, key, h)
  if not ok then -- written by a newer version, which knows what to do
    call('ZADD', KEEP, num(now + 3600000000), member)
  elseif not o or o.created .. h ~= member then -- Redis has expired it; the name may have begun anew
    forgo(member)
  elseif not o.retiring then
    call('ZREM', KEEP, member)
  elseif o.held > now then
    call('ZADD', KEEP, num(o.held), member)
  elseif gone(o) then
    remove(o)
  elseif bare(o) then
    call('HDEL', key, 'r', 'p', 'a')
    call('ZREM', OVER, member)
    call('ZADD', KEEP, num(o.keepName), member)
  else
    call('ZADD', KEEP, num(o.keepBody), member)
  end
end
return {#members}
