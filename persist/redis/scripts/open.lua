-- Open: the version of this build; the key of the format comes after those of the store. PERSIST changes nothing, but
-- is refused where nothing can be written.
local FORMAT = KEYS[7]
for i, key in ipairs(KEYS) do
  local is, want = call('TYPE', key).ok, (i == 1 or i == 7) and 'string' or 'zset'
  if is ~= 'none' and is ~= want then return {'foreign', key, is} end
end
call('PERSIST', FORMAT)
local have = call('GET', FORMAT)
if not have then call('SET', FORMAT, ARGV[1]) end
return {'ok', have or ARGV[1]}
