-- Renews or, with a lifetime of 0, gives back a lease.
-- KEYS: 1 lease. ARGV: 1 token, 2 lifetime in ms. Returns 1, or 0 when the lease is not the caller's (any more).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
