-- Marks a bucket as ours, or closes it: what a mark says, after it was made if there was none.
--
-- KEYS  mark of a bucket
-- ARGV  epoch if a mark has to be made, how long no claims are granted then in ms, and `close` to
--       close a mark that is there as well, or nothing
--
-- A mark is there as long as the bucket's records are: a process that finds it missing, or finds
-- another than it knows, knows that records are gone. It closes all buckets then, also those that
-- have their records. An `open_at` of 0 says that nothing was ever lost.
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
