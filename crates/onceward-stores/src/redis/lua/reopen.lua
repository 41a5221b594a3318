-- An operator accepts that records were lost: claims are granted again, in this bucket.
--
-- KEYS  mark of a bucket
-- ARGV  epoch if a mark has to be made
--
-- Also where nobody has noticed the loss yet, or a newcomer took the server for a new one: an
-- `open_at` that is not 0 tells those who know another epoch that the loss was accepted.
local now = clock()
local it = redis.call('HMGET', KEYS[1], 'epoch', 'open_at')
local granted = it[1] and tonumber(it[2] or 0) <= now
if not it[1] then redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'made_at', digits(now)) end
redis.call('HSET', KEYS[1], 'open_at', digits(now))
return { granted and 'open' or 'reopened' }
