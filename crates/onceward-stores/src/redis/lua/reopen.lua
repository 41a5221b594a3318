-- An operator accepts that records were lost: claims are granted again, in this bucket.
--
-- KEYS  mark of a bucket
local now = clock()
local open_at = tonumber(redis.call('HGET', KEYS[1], 'open_at') or 0)
if open_at <= now then return { 'open' } end
redis.call('HSET', KEYS[1], 'open_at', digits(now))
return { 'reopened' }
