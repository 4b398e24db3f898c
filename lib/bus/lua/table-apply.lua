-- Applies changes to a table in one step.
-- KEYS: 1 meta, 2 data, 3 log, 4 tags, 5 lease (left out for a table any replica may write)
-- ARGV: 1 lease token ('' without a lease), 2 epoch the writer knows ('' any), 3 version it left ('' any),
--       4 version its last unanswered step may have left ('' none), 5 epoch to start with when there is no table,
--       6 log entries kept, then for each change: key, 's' or 'd', value, tag
-- Returns {'ok', epoch, version} or {'lease' | 'absent' | 'epoch' | 'version', epoch, version}; then nothing was written.
local function refuse(why, epoch, version)
  return { why, epoch or '', tostring(version or '0') }
end

local current = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'complete')
local epoch, version = current[1], tonumber(current[2] or '0')

if ARGV[1] ~= '' and redis.call('GET', KEYS[5]) ~= ARGV[1] then
  return refuse('lease', epoch, version)
end
if not epoch or current[3] ~= '1' then
  if ARGV[2] ~= '' then return refuse('absent', nil, 0) end
  epoch, version = ARGV[5], 0
  redis.call('DEL', KEYS[2], KEYS[4])
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'complete', '1', 'version', '0')
elseif ARGV[2] ~= '' and epoch ~= ARGV[2] then
  return refuse('epoch', epoch, version)
elseif ARGV[3] ~= '' and version ~= tonumber(ARGV[3]) and (ARGV[4] == '' or version ~= tonumber(ARGV[4])) then
  return refuse('version', epoch, version)
end

for i = 7, #ARGV, 4 do
  local key, op, value, tag = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  version = version + 1
  if op == 's' then
    redis.call('HSET', KEYS[2], key, struct.pack('>I8', version) .. value)
    if tag ~= '' then redis.call('HSET', KEYS[4], key, tag) else redis.call('HDEL', KEYS[4], key) end
  else
    redis.call('HDEL', KEYS[2], key)
    redis.call('HDEL', KEYS[4], key)
  end
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[6], '*', 'e', epoch, 'v', tostring(version), 'o', op, 'k', key, 'b', value)
end
redis.call('HSET', KEYS[1], 'version', tostring(version))
-- A replacement that was given up, and whose last step arrives late, would undo these changes.
redis.call('HDEL', KEYS[1], 'stage')
return { 'ok', epoch, tostring(version) }
