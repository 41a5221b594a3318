-- A record comes from another store: `machine::import`.
--
-- KEYS  record, marker of its bucket, index of its bucket
-- ARGV  epoch, time to live of the key beyond its tombstone in ms, channel, id, fence, state,
--       updated_at, lease_until, due time, tombstone_until (the last three may be empty), then
--       names and values of all fields
--
-- Without a `#!lua` line, like claim.lua: when memory is full it is refused as a whole.
local fence, state, id = tonumber(ARGV[5]), ARGV[6], ARGV[4]
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end

-- `machine::is_later`: compared from left to right.
local PROGRESS = { running = 0, unknown = 2, completed = 3, failed = 3, released = 3, expired = 4 }
local function how_far(fence, state, updated_at, lease_until)
  if state == 'unknown' then return { fence, PROGRESS[state], 0, 0 } end
  if state ~= 'running' then return { fence, PROGRESS[state], updated_at, 0 } end
  -- Only a hand-back ends a lease at the time at which it is written.
  if lease_until <= updated_at then return { fence, 1, 0, 0 } end
  return { fence, 0, updated_at, lease_until }
end

local function is_later(it, than)
  for position = 1, #it do
    if it[position] ~= than[position] then return it[position] > than[position] end
  end
  return false
end

if record then
  local updated_at = tonumber(redis.call('HGET', KEYS[1], 'updated_at') or '')
  if not updated_at then return redis.error_reply('UNDECODABLE updated_at') end
  local stored = how_far(record.fence, record.state, updated_at, record.lease_until)
  local other = how_far(fence, state, tonumber(ARGV[7]), tonumber(ARGV[8]))
  if not is_later(other, stored) then return { 'kept' } end
end

-- In a bucket that lost its records, an imported one must not look like all there was.
local mark = redis.call('HMGET', KEYS[2], 'epoch', 'open_at', 'fence')
if mark[1] ~= ARGV[1] or tonumber(mark[2] or 0) > now then
  return { 'lost', mark[1] or '', mark[2] or '0', digits(now) }
end
place(KEYS[3], state, tonumber(ARGV[9]) or 0, id)
if record then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], unpack(ARGV, 11))
if ARGV[10] ~= '' then
  redis.call('PEXPIREAT', KEYS[1], digits(after(tonumber(ARGV[10]), ARGV[2])))
end
if fence > tonumber(mark[3] or 0) then redis.call('HSET', KEYS[2], 'fence', digits(fence)) end
if record and record.waited then
  if state == 'running' then
    redis.call('HSET', KEYS[1], 'waited', '1')
  else
    redis.call('PUBLISH', ARGV[3], 'settled')
  end
end
return { 'written' }
