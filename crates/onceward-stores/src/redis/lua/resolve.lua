-- Evidence about an operation whose outcome is unknown: `machine::resolve`.
--
-- KEYS  record, marker of its bucket, index of its bucket
-- ARGV  epoch, fence, unused, then as in decide.lua; the settlement `unknown` is no evidence
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end
local standing = record and standing(record, now)
if not standing then return missing(record, KEYS[2], ARGV[1], now) end
if digits(record.fence) ~= ARGV[2] or standing == 'running' then return { 'stale' } end
if ARGV[4] == 'unknown' then
  if standing == 'unknown' then return confirmed(record) end
  return { 'stale' }
end
return decide(record, ARGV[4], now)
