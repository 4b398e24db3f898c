-- Renews or, with a lifetime of 0, gives back a lease.
-- KEYS: 1 lease, 2 fencing counter. ARGV: 1 token, 2 lifetime in ms
-- Returns 1, or 0 when the lease is not the caller's (any more).
local holder = redis.call('GET', KEYS[1])
-- It ran out because its holder was slow, and nobody has taken it since: it goes on under its number.
if not holder and ARGV[2] ~= '0' and redis.call('GET', KEYS[2]) == string.match(ARGV[1], '^%d+') then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if holder ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
