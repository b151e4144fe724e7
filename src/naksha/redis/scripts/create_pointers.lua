-- Make the pointers whose names are not there; how many were made.
-- KEYS: rows, names, realms. ARGV: realm, then name and row of each.
local made = 0
for i = 2, #ARGV, 2 do
  if redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', KEYS[2], 0, ARGV[i])
    made = made + 1
  end
end
if made > 0 then
  redis.call('ZADD', KEYS[3], 0, ARGV[1])
end
return made
