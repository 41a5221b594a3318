-- Expires or removes one record that is due: `machine::sweep`.
--
-- KEYS  record, index of its bucket
-- ARGV  id
local now = clock()
local record, problem = read(KEYS[1])
if problem then
  -- Never removed. Moved to a part of the index that is still listed, and never due.
  place(KEYS[2], 'unknown', 0, ARGV[1])
  return { 'undecodable' }
end
local standing = record and standing(record, now)
if not standing then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  return { 'removed' }
end
if standing ~= 'expired' or record.state == 'expired' then return { 'same' } end
-- `updated_at` stays, as the operation did not change.
place(KEYS[2], 'expired', record.tombstone_until, ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'expired')
redis.call('HDEL', KEYS[1], 'content', 'tag', 'outcome', 'status', 'error_code', 'resource_kind',
  'resource_id', 'sketch', 'path', 'waited')
return { 'tombstoned' }
