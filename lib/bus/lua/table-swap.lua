-- Makes the staged rows the table, under the next epoch.
-- KEYS: 1 meta, 2 data, 3 log, 4 tags, 5 stage, 6 stage tags, 7 lease (left out for a table any replica may write)
-- ARGV: 1 lease token ('' without a lease), 2 next epoch, 3 version (rows staged), 4 rows that must be staged
-- Returns 'ok', 'lease', or 'stage' when the staged rows are not the writer's own or not all there.
if ARGV[1] ~= '' and redis.call('GET', KEYS[7]) ~= ARGV[1] then return 'lease' end
if redis.call('HGET', KEYS[1], 'stage') ~= ARGV[2] then return 'stage' end
if redis.call('HLEN', KEYS[5]) ~= tonumber(ARGV[4]) then return 'stage' end
redis.call('UNLINK', KEYS[2], KEYS[4])
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[2]) end
if redis.call('EXISTS', KEYS[6]) == 1 then redis.call('RENAME', KEYS[6], KEYS[4]) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'version', ARGV[3], 'complete', '1')
redis.call('HDEL', KEYS[1], 'stage')
-- Trimmed, not deleted: ids go on growing, so a reader that waits behind an old id sees the mark of the new epoch.
redis.call('XTRIM', KEYS[3], 'MAXLEN', '0')
redis.call('XADD', KEYS[3], '*', 'e', ARGV[2], 'v', ARGV[3], 'o', 'e')
return 'ok'
