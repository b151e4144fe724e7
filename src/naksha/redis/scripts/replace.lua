-- Write over an object whose token and type are as expected: they are the head after 12 bytes.
-- KEYS: heads, values. ARGV: key, expected token and type, head, value.
local head = redis.call('HGET', KEYS[1], ARGV[1])
if not head or string.sub(head, 13) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
return 1
