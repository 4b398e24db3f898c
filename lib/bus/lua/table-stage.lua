-- Writes a slice of the next epoch's rows beside the table; nothing is visible to readers yet.
-- KEYS: 1 meta, 2 stage, 3 stage tags, 4 lease (left out for a table any replica may write)
-- ARGV: 1 lease token ('' without a lease), 2 next epoch, 3 rows staged before this slice ('0' starts afresh),
--       then for each row: key, value, tag
-- Returns 'ok', 'lease', or 'stage' when another writer has started to stage.
if ARGV[1] ~= '' and redis.call('GET', KEYS[4]) ~= ARGV[1] then return 'lease' end
if ARGV[3] == '0' then
  redis.call('UNLINK', KEYS[2], KEYS[3])
  redis.call('HSET', KEYS[1], 'stage', ARGV[2])
elseif redis.call('HGET', KEYS[1], 'stage') ~= ARGV[2] then
  return 'stage'
end
local version = tonumber(ARGV[3])
for i = 4, #ARGV, 3 do
  version = version + 1
  redis.call('HSET', KEYS[2], ARGV[i], struct.pack('>I8', version) .. ARGV[i + 1])
  if ARGV[i + 2] ~= '' then redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 2]) end
end
return 'ok'
