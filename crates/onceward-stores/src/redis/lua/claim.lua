-- A caller asks for the right to run: `machine::claim`.
--
-- KEYS  record, marker of its bucket, index of its bucket
-- ARGV  epoch, owner, fingerprint, rules, lease in ms, takeover (1 or 0), operation, id, touch,
--       keep (1 if a record past its time is not replaced), then names and values of the fields that
--       a new record takes as they are
--
-- Without a `#!lua` line: when memory is full, the server then refuses the first write and not the
-- whole script, so settled records are still replayed.
local epoch, owner, lease, takeover = ARGV[1], ARGV[2], ARGV[5], ARGV[6] == '1'
local now = clock()
local record, problem = read(KEYS[1])
if problem then return problem end
local standing = record and standing(record, now)
local own = record and record.owner == owner
local same = record and record.fingerprint == ARGV[3] and record.rules == ARGV[4]

-- Grants a new record, a released one, or a takeover.
local function grant()
  local mark = redis.call('HMGET', KEYS[2], 'epoch', 'open_at', 'fence')
  if mark[1] ~= epoch or tonumber(mark[2] or 0) > now then
    return { 'lost', mark[1] or '', mark[2] or '0', digits(now) }
  end
  -- The marker has the highest fence of its bucket, removed records included.
  local above = record and record.fence or tonumber(mark[3] or 0)
  local fence = math.max(above + 1, now)
  local lease_until = after(now, lease)
  local operation, attempts, created_at = ARGV[7], 1, digits(now)
  if standing and same then
    -- The same intent keeps its operation id, so that downstream systems recognise it.
    operation, attempts, created_at = record.operation, record.attempts + 1, record.created_at
  end
  place(KEYS[3], 'running', 0, ARGV[8])
  -- Deletes the old record with its time to live: a running record never expires by that.
  if record then redis.call('DEL', KEYS[1]) end
  redis.call('HSET', KEYS[1], 'format', '1/1', 'state', 'running', 'fence', digits(fence),
    'owner', owner, 'fingerprint', ARGV[3], 'rules', ARGV[4], 'operation', operation,
    'attempts', digits(attempts), 'lease_until', digits(lease_until), 'created_at', created_at,
    'updated_at', digits(now), unpack(ARGV, 11))
  if record and record.state == 'running' then redis.call('HSET', KEYS[1], 'taken_over', '1') end
  if fence > tonumber(mark[3] or 0) then redis.call('HSET', KEYS[2], 'fence', digits(fence)) end
  return { 'granted', digits(fence), digits(lease_until), operation, digits(attempts) }
end

-- A duplicate that arrives after its grant has ended: its sender has moved on.
local function late()
  return { 'running', record.operation, '0' }
end

if record and not standing and ARGV[10] == '1' then return { 'expired' } end
if not standing then return grant() end
if standing == 'expired' then return { 'expired' } end
if standing == 'released' then
  if own then return late() end
  return grant()
end
if not same then return { 'mismatch', redis.call('HGET', KEYS[1], 'sketch') or '' } end

if standing == 'running' then
  if own then
    -- Repeats a write where the caller waits for replicas, as only a write can be waited for.
    if ARGV[9] == '1' then redis.call('HSET', KEYS[1], 'fence', digits(record.fence)) end
    return { 'granted', digits(record.fence), digits(record.lease_until), record.operation,
      digits(record.attempts) }
  end
  -- The settlement is published only if a caller may be waiting. A hint: it is left out when memory
  -- is full.
  if not record.waited then redis.pcall('HSET', KEYS[1], 'waited', '1') end
  return { 'running', record.operation, digits(record.lease_until - now) }
end

if record.state == 'running' then
  if takeover and own then return late() end
  if takeover then return grant() end
  place(KEYS[3], 'unknown', 0, ARGV[8])
  redis.call('HSET', KEYS[1], 'state', 'unknown', 'unknown_cause', 'lapsed', 'updated_at', digits(now))
  redis.call('HDEL', KEYS[1], 'lease_until')
  return { 'unknown', record.operation }
end

if standing == 'unknown' then return { 'unknown', record.operation } end

local it = redis.call('HMGET', KEYS[1], 'content', 'tag', 'outcome', 'status', 'error_code',
  'resource_kind', 'resource_id')
return { standing, record.operation, unpack(it) }
