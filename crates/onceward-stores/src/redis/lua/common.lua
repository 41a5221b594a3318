-- Functions that all scripts share. This text is put before each of them.
--
-- Times are milliseconds since 1970 by this server's clock, and fences are at least such a time.
-- Both stay far below 2^53, up to which Lua's numbers are exact. They are stored as decimal digits.
-- Reads come before writes, and the index is written first: a key of the wrong type, and a server
-- that refuses to write (OOM, READONLY), fail the script before anything has changed.

-- A record's position in its bucket's index: by state, then by due time; see index.lua.
local SPAN = 17592186044416 -- 2^44 ms, the year 2527
local PLACES = { running = 0, unknown = 1, completed = 2, failed = 3, released = 4, expired = 5 }

local function digits(number)
  return string.format('%.0f', number)
end

local function clock()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- The time after a duration, limited to the year 2527.
local function after(time, duration)
  return math.min(time + tonumber(duration), SPAN - 1)
end

local function place(index, state, due, id)
  redis.call('ZADD', index, digits(PLACES[state] * SPAN + due), id)
end

local function broken(why)
  return nil, redis.error_reply('UNDECODABLE ' .. why)
end

-- The record under a key: nil if there is none, nil and an error if it cannot be read.
local function read(key)
  local it = redis.call('HMGET', key, 'format', 'state', 'fence', 'owner', 'fingerprint', 'rules',
    'operation', 'attempts', 'taken_over', 'lease_until', 'keep_until', 'tombstone_until',
    'created_at', 'waited')
  if not it[1] then
    if redis.call('EXISTS', key) == 0 then return nil end
    return broken('format')
  end
  -- "version/oldest reader": a newer release may add fields that this one can ignore.
  local reader = tonumber(string.match(it[1], '^%d+/(%d+)$'))
  if not reader then return broken('format') end
  if reader > 1 then return broken('format: it needs a newer release') end
  local record = {
    state = it[2], fence = tonumber(it[3]), owner = it[4], fingerprint = it[5], rules = it[6],
    operation = it[7], attempts = tonumber(it[8]), taken_over = it[9] == '1',
    lease_until = tonumber(it[10]), keep_until = tonumber(it[11]),
    tombstone_until = tonumber(it[12]), created_at = it[13], waited = it[14],
  }
  if not PLACES[record.state or ''] then return broken('state') end
  if not record.fence or not record.attempts then return broken('fence') end
  if not (record.owner and record.fingerprint and record.rules) then return broken('owner') end
  if not (record.operation and record.created_at) then return broken('operation') end
  if record.state == 'running' then
    if not record.lease_until then return broken('lease_until') end
  elseif record.state ~= 'unknown' then
    if not (record.keep_until and record.tombstone_until) then return broken('keep_until') end
  end
  return record
end

-- The state that counts now: a lapsed lease is unknown, a record past its retention is expired, and
-- one past its tombstone is gone (nil).
local function standing(record, now)
  if record.state == 'unknown' then return 'unknown' end
  if record.state == 'running' then
    return now >= record.lease_until and 'unknown' or 'running'
  end
  if now >= record.tombstone_until then return nil end
  if now >= record.keep_until then return 'expired' end
  return record.state
end

-- The reply for a missing record. If the bucket's marker has another epoch than the caller knows,
-- the whole bucket was lost, and not only this record.
local function missing(record, mark, epoch, now)
  if record then return { 'missing' } end
  local it = redis.call('HMGET', mark, 'epoch', 'open_at')
  if it[1] == epoch then return { 'missing' } end
  return { 'lost', it[1] or '', it[2] or '0', digits(now) }
end
