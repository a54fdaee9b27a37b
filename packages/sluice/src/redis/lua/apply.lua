--[[
  Applies a batch of requests to buckets, each request all or nothing, all of them at one instant of Redis time.

  KEYS     the values the batch touches. A packed value holds buckets of three numbers (include/packed.lua), a listed
           value one bucket that keeps a list (include/listed.lua). A key is of one kind for good: its name says which.
  ARGV[1]  JSON [limits, sets, texts, numbers]; indexes are 1-based, 0 stands for no text
             limit    [generation, code, capacity, tick_us, a, b, id, shape, hold]
                      code 1 token, 2 leaky, 3 fixed, 4 sliding, 5 log, 6 concurrency
                      a, b: parts per unit and per tick of the buckets; window in ticks (in us for 5 and 6) and 0;
                      shape: the first six, and hold if it is not 0, as one text
                      hold: how long units may be on lease, in ticks; 0: they may not
             set      limits that some requests meet together, all of other buckets
             numbers  per request: verb 4, key, set, cost, count (as many plain takes: of packed buckets in one value,
                      all enforced, of one cost, without op id and details; each is of the next key), or
                      verb 6, key, set, cost, then per limit of the set max, kind, number of gives, and per give three
                      numbers, as below (a take of a lease), or
                      verb 7, key, set of one, and three numbers, as below (a give to a packed bucket), or
                      verb (0 take, 1 peek, 2 give, 3 reset, 5 take that may ask for a bucket twice), op id (text),
                      number of parts, then six per part:
                      take, peek   key, limit, detail (text), min, max, kind (0 enforce, 1 shadow, 2 force, 3 hold)
                      give         key, limit, detail (text), units, booked_us, units that are on lease no more
                      reset        key, limit, detail (text), 0, 0, 0
  ARGV[2]  now_us, "" for the clock of Redis (tests pass a number)
  returns  integers: now_us, then per request
             take, peek   status (1 granted, 0 refused, -1 a value cannot be read, -2 too many buckets under one key),
                          and unless that is negative: replayed (0, 1), then per part short (0 no, 1 now, 2 never,
                          3 stale rules), units, and what the bucket holds as of now:
                          packed x, y; listed used, wait_us, reset_us
             verb 4       x of each bucket, if it was granted and nothing is on lease; or -1, then as for a take
             verb 6       status (1, 0), then per limit units, x, y; or -1, then as for a give and as for a take
             give, reset  status (1, or negative), also of verb 7

  Nothing is written before every request of the batch has been decided, and each changed key is written once. Tables
  are made once per batch, not per request: that is most of the speed.
]]
--- @include "batch"
--- @include "values"
--- @include "plain"
--- @include "leased"

-- What only some batches need. Making functions is most of what a call costs before its first request.
local function make_verbs()
--- @include "packed"
--- @include "listed"
--- @include "work"
--- @include "verbs"
  return VERBS, take_at_length, leased_at_length, give_at_length, store_lists
end

local verbs, long_take, long_lease, long_give, store_lists_too
local function need_verbs()
  if not verbs then verbs, long_take, long_lease, long_give, store_lists_too = make_verbs() end
end

local function at_length(key, set, cost)
  need_verbs()
  return long_take(key, set, cost)
end

local function lease_at_length(first)
  need_verbs()
  return long_lease(first)
end

local function give_it_at_length(first)
  need_verbs()
  return long_give(first)
end

local input = cjson.decode(ARGV[1])
limits, sets, texts, numbers = input[1], input[2], input[3], input[4]

now_us = tonumber(ARGV[2])
if not now_us then
  local time = redis.call('TIME')
  now_us = time[1] * 1000000 + time[2]
end

raw = redis.call('MGET', unpack(KEYS))
prepare_limits()

-- What is written out behind them is not a request.
local last = #numbers
local function decide_all()
  local at = 1
  say(now_us)
  while at < last do
    local verb = numbers[at]
    if verb == 4 then
      local key, set, cost, count = numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]
      for each = key, key + count - 1 do take_plain(each, set, cost, at_length) end
      at = at + 5
    elseif verb == 6 then
      at = take_leased(at, lease_at_length)
    elseif verb == 7 then
      give_plain(at, give_it_at_length)
      at = at + 6
    else
      local op, parts = numbers[at + 1], numbers[at + 2]
      need_verbs()
      verbs[verb + 1](at + 3, parts, op == 0 and '' or texts[op])
      at = at + 3 + 6 * parts
    end
  end
end

-- Values are read without a guard, which costs; when one of them cannot be read, all is decided again with it.
if not pcall(decide_all) then
  start_again()
  verbs = nil
  decide_all()
end
store_values()
if verbs then store_lists_too() end
return reply
