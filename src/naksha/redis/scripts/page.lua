-- The first rows of a range in the order of their keys' bytes: key and row of each, at one moment.
-- KEYS: keys, rows. ARGV: from, to (as ZRANGEBYLEX has them), how many.
local keys = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local found = {}
for i, key in ipairs(keys) do
  found[2 * i - 1] = key
  found[2 * i] = redis.call('HGET', KEYS[2], key)
end
return found
