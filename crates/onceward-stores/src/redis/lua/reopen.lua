-- An operator accepts that records were lost: claims are granted in this bucket again.
--
-- KEYS  marker of a bucket
-- ARGV  epoch of a new marker
--
-- Also for a loss that no process has noticed, or that a new process took for a new server. An
-- `open_at` other than 0 tells processes that know another epoch that the loss was accepted.
local now = clock()
local it = redis.call('HMGET', KEYS[1], 'epoch', 'open_at')
local granted = it[1] and tonumber(it[2] or 0) <= now
if not it[1] then redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'made_at', digits(now)) end
redis.call('HSET', KEYS[1], 'open_at', digits(now))
return { granted and 'open' or 'reopened' }
