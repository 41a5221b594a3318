-- Load for wrk: every request has a key of its own (first), one of 64 (replay), or none (pass).
-- Arguments: first|replay|pass, a number that no other run has, the body, the path.

-- axum-idempotent keeps replies inside sessions and looks at all of a session's replies for
-- each new one, so the load is spread over many sessions; its store holds 10,000.
local SESSIONS = 4096
local KEYS = 64

local head, tail, prefix, keys
local count = 0

local function request_with(number)
   return head
      .. string.format("idempotency-key: %s%012x\r\n", prefix, number)
      .. string.format("cookie: session=%021dA", number % SESSIONS)
      .. tail
end

function init(args)
   local mode, run, body, path = args[1], tonumber(args[2]), args[3], args[4]
   prefix = string.format("%08x-0b5e-4000-8000-", run)
   head = "POST " .. path .. " HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
      .. "x-tenant: acme\r\n"
   tail = "\r\ncontent-length: " .. #body .. "\r\n\r\n" .. body
   if mode == "pass" then
      keys = { head .. "cookie: session=1" .. tail }
   elseif mode == "replay" then
      keys = {}
      for number = 1, KEYS do
         keys[number] = request_with(number)
      end
   end
end

function request()
   count = count + 1
   if keys then
      return keys[count % #keys + 1]
   end
   return request_with(count)
end

function done(summary, latency)
   local errors = summary.errors
   io.write(string.format(
      '{"requests":%d,"micros":%d,"refused":%d,"broken":%d,"p50_micros":%d,"p99_micros":%d}\n',
      summary.requests, summary.duration, errors.status,
      errors.connect + errors.read + errors.write + errors.timeout,
      latency:percentile(50), latency:percentile(99)))
end
