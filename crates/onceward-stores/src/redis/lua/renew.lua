-- A holder extends its lease: `machine::renew`.
--
-- KEYS  record, marker of its bucket
-- ARGV  epoch, owner, fence, lease in ms
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end
if not record or not standing(record, now) then return missing(record, KEYS[2], ARGV[1], now) end
-- A late renewal changes nothing: stored as unknown, the record could not be taken over.
if record.state ~= 'running' or record.owner ~= ARGV[2] or digits(record.fence) ~= ARGV[3]
  or now >= record.lease_until then
  return { 'stale' }
end
local lease_until = math.max(record.lease_until, after(now, ARGV[4]))
redis.call('HSET', KEYS[1], 'lease_until', digits(lease_until), 'updated_at', digits(now))
return { 'applied', digits(lease_until) }
