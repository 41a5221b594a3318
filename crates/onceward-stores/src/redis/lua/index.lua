-- The content of a bucket's index: the number of records of each state, due records, a random one,
-- and the running and unknown ones.
--
-- KEYS  index of a bucket: a sorted set of ids, by state and then by due time
-- ARGV  most due records to return, and `open` to return running and unknown ones, or nothing
local now, left = clock(), tonumber(ARGV[1])
local counts, due = {}, {}
for state, position in pairs(PLACES) do
  local from = position * SPAN
  counts[position + 1] = redis.call('ZCOUNT', KEYS[1], digits(from), digits(from + SPAN - 1))
  if state ~= 'running' and state ~= 'unknown' and left > 0 then
    local found = redis.call('ZRANGE', KEYS[1], digits(from), digits(from + now), 'BYSCORE',
      'LIMIT', '0', tostring(left))
    for _, id in ipairs(found) do due[#due + 1] = id end
    left = left - #found
  end
end
local open = {}
if ARGV[2] == 'open' then
  local past = digits((PLACES.unknown + 1) * SPAN)
  open = redis.call('ZRANGE', KEYS[1], '-inf', '(' .. past, 'BYSCORE')
end
return { counts, due, redis.call('ZRANDMEMBER', KEYS[1]), open }
