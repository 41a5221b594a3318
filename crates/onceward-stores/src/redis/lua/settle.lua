-- A holder settles its operation: `machine::settle`.
--
-- KEYS  record, marker of its bucket, index of its bucket
-- ARGV  epoch, owner, fence, then as in decide.lua
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end
if not record or not standing(record, now) then return missing(record, KEYS[2], ARGV[1], now) end
if record.owner ~= ARGV[2] or digits(record.fence) ~= ARGV[3] then return { 'stale' } end

-- An owner that took over may know that it did nothing itself, but the owner before it may have
-- acted. So the intent stands as it did before the takeover.
if record.taken_over and ARGV[4] == 'released' then
  local standing = standing(record, now)
  if standing == 'unknown' then return confirmed(record) end
  if standing ~= 'running' then return { 'stale' } end
  redis.call('HSET', KEYS[1], 'lease_until', digits(now), 'updated_at', digits(now))
  publish(record)
  return { 'applied' }
end
return decide(record, ARGV[4], now)
