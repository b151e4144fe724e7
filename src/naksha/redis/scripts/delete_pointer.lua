-- Delete a pointer that is as expected.
-- KEYS: rows, names. ARGV: name, how the row must begin.
local row = redis.call('HGET', KEYS[1], ARGV[1])
if not row or string.sub(row, 1, #ARGV[2]) ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return 1
