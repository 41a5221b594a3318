-- Returns a bucket's loss marker, if there is one.
--
-- KEYS  marker of a bucket
local it = redis.call('HMGET', KEYS[1], 'epoch', 'open_at')
return { it[1] or '', it[2] or '0', digits(clock()) }
