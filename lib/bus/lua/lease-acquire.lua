-- Takes a lease that nobody holds, under the next fencing number.
-- KEYS: 1 lease, 2 fencing counter. ARGV: 1 holder, 2 lifetime in ms
-- Returns the token '<fencing number>:<holder>', or, while somebody else holds it, the milliseconds it lasts unless it is renewed.
local rest = redis.call('PTTL', KEYS[1])
if rest ~= -2 then return rest end
local token = tostring(redis.call('INCR', KEYS[2])) .. ':' .. ARGV[1]
redis.call('SET', KEYS[1], token, 'PX', ARGV[2])
return token
