-- What all scripts share. Each key of a store has the same hash tag, so that keys which a script finds in an index lie
-- where those do that it was given.
--
-- A record is a hash. Its field m is all that scripts look at; n, r, p, e and a (name, request, progress, end, answer)
-- are encoded by the store. Times are microseconds since 1970 by the server's clock, exact in a double until 2255.
--
-- Indexes are sorted sets of members: 16 hex digits that order Created, then the record's hash.
--   open   pending, by Created
--   over   settled, with their answers, by Created
--   wait   what recovery will want, by the time from which on: the claim's end, or NotBefore
--   ready  the same once that time has come, by Created
--   keep   settled and not owed, by the time when retention has something to do
local TOKEN, OPEN, OVER, WAIT, READY, KEEP, TURN, OP = unpack(KEYS, 1, 8)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function num(x) return string.format('%.0f', x) end

-- load returns what m says, nil if there is no such record.
local function load(key, hash)
  local m = redis.pcall('HGET', key, 'm')
  if not m then return nil end
  if type(m) == 'table' then error('samekey-format 0 ' .. key) end -- not a hash
  local o = {key = key, hash = hash}
  o.state, o.owed, o.parked, o.notBefore, o.keepBody, o.keepName, o.created, o.token, o.held, o.owner =
    string.match(m, '^1 (%d) ([01]) ([01]) (%d+) (%d+) (%d+) (%x+) (%d+) (%d+) (%S+)$')
  if not o.state then error('samekey-format ' .. string.match(m, '^%d*') .. ' ' .. key) end
  o.notBefore, o.keepBody, o.keepName, o.held =
    tonumber(o.notBefore), tonumber(o.keepBody), tonumber(o.keepName), tonumber(o.held)
  o.retiring = o.state ~= '0' and o.owed == '0'
  return o
end

-- save writes m, and further fields with it.
local function save(o, ...)
  call('HSET', o.key, 'm', table.concat({'1', o.state, o.owed, o.parked, num(o.notBefore), num(o.keepBody),
    num(o.keepName), o.created, o.token, num(o.held), o.owner}, ' '), ...)
end

-- bare: only the name may be told; gone: not even that, only the sweep has not come by.
local function bare(o) return o.state ~= '0' and o.owed == '0' and o.held <= now and o.keepBody <= now end
local function gone(o) return bare(o) and o.keepName <= now end

-- show is a reply with a record, or with what is left of it.
local function show(status, o)
  if bare(o) then
    local f = call('HMGET', o.key, 'n', 'e')
    return {status, o.token, o.hash, f[1], f[2]}
  end
  local f = call('HMGET', o.key, 'n', 'e', 'r', 'p', 'a')
  return {status, o.token, o.hash, f[1], f[2], f[3], f[4], f[5]}
end

-- recovers: ClaimDue may give it out, from due on.
local function recovers(o) return o.owed == '1' or o.state == '0' and o.parked == '0' end
local function due(o)
  if o.state == '0' then return math.max(o.held, o.notBefore) end
  return o.held
end

-- place notes where recovery and retention look for o; sweep is when retention has something to do. It comes before
-- save: its first command takes no memory, and after such a one Redis lets a script write even if memory is full.
local function place(o, sweep)
  local member = o.created .. o.hash
  call('ZREM', READY, member)
  if recovers(o) then
    call('ZADD', WAIT, num(due(o)), member)
  else
    call('ZREM', WAIT, member)
  end
  if o.state ~= '0' and o.owed == '0' then
    call('ZADD', KEEP, num(sweep), member)
    call('PEXPIREAT', o.key, num(math.ceil(math.max(o.keepBody, o.keepName, o.held) / 1000)))
  elseif o.retiring then
    call('ZREM', KEEP, member)
    call('PERSIST', o.key)
  end
end

-- forgo takes a member out of all indexes, whose record is not there any more.
local function forgo(member)
  for _, index in ipairs({OPEN, OVER, WAIT, READY, KEEP}) do call('ZREM', index, member) end
end

local function remove(o)
  local member = o.created .. o.hash
  call('UNLINK', o.key)
  call('ZREM', WAIT, member)
  call('ZREM', READY, member)
  if o.state == '0' then
    call('ZREM', OPEN, member)
  else
    call('ZREM', OVER, member)
    call('ZREM', KEEP, member)
  end
end
