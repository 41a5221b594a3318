-- Makes everything of a store older by some milliseconds.
local prefix, by = ARGV[1], tonumber(ARGV[2])
local TIMES = { 'lease_until', 'keep_until', 'tombstone_until', 'created_at', 'updated_at' }
local cursor = '0'
repeat
  local found = redis.call('SCAN', cursor, 'MATCH', prefix .. ':{*', 'COUNT', '1000')
  cursor = found[1]
  for _, key in ipairs(found[2]) do
    if string.match(key, ':index$') then
      local entries = redis.call('ZRANGE', key, '0', '-1', 'WITHSCORES')
      for position = 1, #entries, 2 do
        -- Open ones are not in the index by time.
        if tonumber(entries[position + 1]) >= 2 * 17592186044416 then
          redis.call('ZINCRBY', key, -by, entries[position])
        end
      end
    elseif not string.match(key, ':mark$') then
      for _, field in ipairs(TIMES) do
        if redis.call('HEXISTS', key, field) == 1 then redis.call('HINCRBY', key, field, -by) end
      end
      local left = redis.call('PTTL', key)
      if left > by then
        redis.call('PEXPIRE', key, left - by)
      elseif left >= 0 then
        redis.call('DEL', key)
      end
    end
  end
until cursor == '0'
return 'OK'
