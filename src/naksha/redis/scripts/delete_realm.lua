-- Delete everything of a realm; the memory is given back in the background.
-- KEYS: realms, then all keys of the realm. ARGV: realm.
for i = 2, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
