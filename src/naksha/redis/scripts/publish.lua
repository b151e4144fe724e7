-- Write objects, then put a pointer in the place of one that is as expected. Whether it moved.
-- KEYS: heads, values, keys, realms, pointers.
-- ARGV: realm, name, how the pointer must begin, the new one, then key, head and value of each.
for i = 5, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
  redis.call('ZADD', KEYS[3], 0, ARGV[i])
end
if #ARGV > 4 then
  redis.call('ZADD', KEYS[4], 0, ARGV[1])
end
local row = redis.call('HGET', KEYS[5], ARGV[2])
if not row or string.sub(row, 1, #ARGV[3]) ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[5], ARGV[2], ARGV[4])
return 1
