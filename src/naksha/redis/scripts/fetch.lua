-- Head and value of each object, at one moment; nothing for those that are not there.
-- KEYS: heads, values. ARGV: the keys.
local found = {}
for i, key in ipairs(ARGV) do
  found[2 * i - 1] = redis.call('HGET', KEYS[1], key)
  found[2 * i] = redis.call('HGET', KEYS[2], key)
end
return found
