-- Delete objects, whatever they are.
-- KEYS: heads, values, keys. ARGV: the keys.
for _, key in ipairs(ARGV) do
  redis.call('HDEL', KEYS[1], key)
  redis.call('HDEL', KEYS[2], key)
  redis.call('ZREM', KEYS[3], key)
end
return 1
