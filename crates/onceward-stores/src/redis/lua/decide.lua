-- Writes a settlement into a record. This text is put before settle.lua and resolve.lua.
--
-- KEYS  record, marker of its bucket, index of its bucket
-- ARGV  from the fourth on: settlement, retention in ms, tombstone in ms, further time to live of
--       the key in ms, channel, id, touch, and for an outcome: content, tag, bytes, status and
--       error code (empty if there is none), and for its resource: kind, id. For `unknown`: the
--       cause
local KEEP, TOMBSTONE, MARGIN, CHANNEL, ID, TOUCH = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local OUTCOME = { 'content', 'tag', 'outcome', 'status', 'error_code', 'resource_kind', 'resource_id' }

-- The argument for a field of the outcome, or nil.
local function argument(position)
  local value = ARGV[10 + position]
  local optional = OUTCOME[position] == 'status' or OUTCOME[position] == 'error_code'
  if optional and value == '' then return nil end
  return value
end

-- Wakes waiters in other processes, if the record was marked as awaited: a cluster sends every
-- message to all of its nodes.
local function publish(record)
  if record.waited then redis.call('PUBLISH', CHANNEL, 'settled') end
end

-- The record has this settlement already. Where the caller waits for replicas it is written again,
-- as only a write can be waited for.
local function confirmed(record)
  if TOUCH == '1' then redis.call('HSET', KEYS[1], 'fence', digits(record.fence)) end
  return { 'applied' }
end

local function same_outcome()
  local stored = redis.call('HMGET', KEYS[1], unpack(OUTCOME))
  for position = 1, #OUTCOME do
    if (stored[position] or nil) ~= argument(position) then return false end
  end
  return true
end

local function write_outcome()
  local fields = {}
  for position = 1, #OUTCOME do
    local value = argument(position)
    if value then
      fields[#fields + 1] = OUTCOME[position]
      fields[#fields + 1] = value
    end
  end
  if #fields > 0 then redis.call('HSET', KEYS[1], unpack(fields)) end
end

-- `machine::decide`: settles a record that is still open, or confirms the same settlement.
local function decide(record, settlement, now)
  local state = record.state
  if standing(record, now) == 'expired' then return { 'stale' } end
  if state == settlement then
    if state == 'unknown' or state == 'released' or same_outcome() then return confirmed(record) end
    return { 'stale' }
  end
  if state ~= 'running' and state ~= 'unknown' then return { 'stale' } end
  if settlement == 'unknown' then
    place(KEYS[3], 'unknown', 0, ID)
    redis.call('HSET', KEYS[1], 'state', 'unknown', 'unknown_cause', ARGV[11], 'updated_at', digits(now))
  else
    local keep_until = after(now, KEEP)
    -- A release leaves no tombstone, as there is no outcome to look up later.
    local tombstone_until = settlement == 'released' and keep_until or after(keep_until, TOMBSTONE)
    place(KEYS[3], settlement, keep_until, ID)
    redis.call('HSET', KEYS[1], 'state', settlement, 'updated_at', digits(now),
      'keep_until', digits(keep_until), 'tombstone_until', digits(tombstone_until))
    redis.call('HDEL', KEYS[1], 'unknown_cause')
    write_outcome()
    -- Later than all retention, for records that are not purged.
    redis.call('PEXPIREAT', KEYS[1], digits(after(tombstone_until, MARGIN)))
  end
  redis.call('HDEL', KEYS[1], 'lease_until')
  publish(record)
  return { 'applied' }
end
