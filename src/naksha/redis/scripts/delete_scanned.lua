-- Delete the rows of a realm that still begin as they were seen; how many were deleted. A realm
-- that is empty then is forgotten.
-- KEYS: rows, values (of objects), their keys, names of pointers, keys of objects, realms.
-- ARGV: realm, then key and how the row must begin of each.
local deleted = 0
for i = 2, #ARGV, 2 do
  local row = redis.call('HGET', KEYS[1], ARGV[i])
  if row and string.sub(row, 1, #ARGV[i + 1]) == ARGV[i + 1] then
    redis.call('HDEL', KEYS[1], ARGV[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
    redis.call('ZREM', KEYS[3], ARGV[i])
    deleted = deleted + 1
  end
end
if redis.call('EXISTS', KEYS[4], KEYS[5]) == 0 then
  redis.call('ZREM', KEYS[6], ARGV[1])
end
return deleted
