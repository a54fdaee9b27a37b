--[[
  Applies a batch of requests to buckets, each request all or nothing, all of them at one instant of Redis time.

  KEYS     the values the batch touches. A packed value is a msgpack map: bucket name -> entry (include/packed.lua);
           a listed value is one msgpack array (include/listed.lua). A key is of one kind for good: its name says which.
  ARGV[1]  JSON [limits, requests]
             limit    [generation, code, capacity, tick_us, a, b, id]
                      code 1 token, 2 leaky, 3 fixed, 4 sliding, 5 log, 6 concurrency
                      a, b: parts per unit and per tick of the buckets; window in ticks (in us for 5 and 6) and 0
             request  [verb, op_id, charge, charge, ...]      verb 0 take, 1 peek, 2 give, 3 reset
             charge   [key, limit, detail, min, max, kind]    key and limit are 1-based; kind 0 enforce, 1 shadow, 2 force
             give     [key, limit, detail, units, booked_us]
  ARGV[2]  now_us, "" for the clock of Redis (tests pass a number)
  returns  integers: now_us, then per request
             take, peek   status (1 granted, 0 refused, -1 a value cannot be read, -2 too many buckets under one key),
                          replayed (0, 1), then per charge, unless status < 0:
                          short (0 no, 1 now, 2 never, 3 stale rules), units, then what the bucket holds as of now:
                          packed x, y; listed used, wait_us, reset_us
             give, reset  status (1, or -1)

  Nothing is written before every request of the batch has been decided, and each changed key is written once.
]]
--- @include "packed"
--- @include "listed"
--- @include "values"
--- @include "verbs"

local input = cjson.decode(ARGV[1])
local limits, requests = input[1], input[2]

local now_us = tonumber(ARGV[2])
if not now_us then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end

local values = load_values(KEYS)
local reply = { now_us }
for i = 1, #requests do
  local request = requests[i]
  VERBS[request[1] + 1](values, limits, request, now_us, reply)
end
store_values(values, now_us)
return reply
