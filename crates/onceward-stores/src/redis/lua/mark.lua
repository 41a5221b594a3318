-- Creates a bucket's loss marker if it is missing, or closes an existing one. Returns it.
--
-- KEYS  marker of a bucket
-- ARGV  epoch of a new marker, how long it grants no claims in ms, and `close` to close an existing
--       marker too, or nothing
--
-- A marker exists as long as the bucket's records do. A process that finds it missing, or finds
-- another epoch than it knows, has detected a loss, and closes all buckets, the intact ones too. An
-- `open_at` of 0 means that nothing was ever lost.
local now = clock()
local it = redis.call('HMGET', KEYS[1], 'epoch', 'open_at')
local epoch, open_at = it[1], it[2] or '0'
local closed_until = tonumber(ARGV[2]) > 0 and digits(after(now, ARGV[2])) or '0'
if not epoch then
  epoch, open_at = ARGV[1], closed_until
  redis.call('HSET', KEYS[1], 'epoch', epoch, 'open_at', open_at, 'made_at', digits(now))
elseif ARGV[3] == 'close' and closed_until ~= '0' and tonumber(open_at) <= now then
  open_at = closed_until
  redis.call('HSET', KEYS[1], 'open_at', open_at)
end
return { epoch, open_at, digits(now) }
