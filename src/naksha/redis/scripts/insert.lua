-- Write an object where none is.
-- KEYS: heads, values, keys, realms. ARGV: realm, key, head, value.
if redis.call('HSETNX', KEYS[1], ARGV[2], ARGV[3]) == 0 then
  return 0
end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('ZADD', KEYS[3], 0, ARGV[2])
redis.call('ZADD', KEYS[4], 0, ARGV[1])
return 1
