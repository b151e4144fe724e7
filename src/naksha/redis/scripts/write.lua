-- Write objects over whatever is there.
-- KEYS: heads, values, keys, realms. ARGV: realm, then key, head and value of each.
for i = 2, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
  redis.call('ZADD', KEYS[3], 0, ARGV[i])
end
redis.call('ZADD', KEYS[4], 0, ARGV[1])
return 1
