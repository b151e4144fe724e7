-- Delete an object whose token is as expected: it is in the head after 12 bytes.
-- KEYS: heads, values, keys. ARGV: key, expected token.
local head = redis.call('HGET', KEYS[1], ARGV[1])
if not head or string.sub(head, 13, 12 + #ARGV[2]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return 1
