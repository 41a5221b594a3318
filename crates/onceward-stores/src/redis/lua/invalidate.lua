-- Drops the content of a settled record's outcome: `machine::invalidate`.
--
-- KEYS  record, marker of its bucket
-- ARGV  epoch, fence, codec of an invalidated outcome, touch
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end
local standing = record and standing(record, now)
if not standing then return missing(record, KEYS[2], ARGV[1], now) end
if digits(record.fence) ~= ARGV[2] then return { 'stale' } end
if standing ~= 'completed' and standing ~= 'failed' then return { 'stale' } end
local it = redis.call('HMGET', KEYS[1], 'content', 'tag', 'outcome', 'updated_at')
if it[1] == 'omitted' and it[2] == ARGV[3] and it[3] == '' then
  -- Where the caller waits for replicas it is written again, as only a write can be waited for.
  if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'fence', digits(record.fence)) end
  return { 'applied' }
end
local updated_at = tonumber(it[4] or '')
if not updated_at then return redis.error_reply('UNDECODABLE updated_at') end
-- Later than the settlement, so that no copy of the record from before replaces it.
redis.call('HSET', KEYS[1], 'content', 'omitted', 'tag', ARGV[3], 'outcome', '',
  'updated_at', digits(math.max(now, updated_at + 1)))
return { 'applied' }
