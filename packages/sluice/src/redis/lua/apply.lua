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
                      verb 8, op id (text), number of parts, key that remembers it, until_us, then as of a give (a give
                      that happens once, and not after until_us), or
                      verb (0 take, 1 peek, 2 give, 3 reset, 5 take that may ask for a bucket twice), op id (text),
                      number of parts, then six per part:
                      take, peek   key, limit, detail (text), min, max, kind (0 enforce, 1 shadow, 2 force, 3 hold)
                      give         key, limit, detail (text), units, booked_us, units that are on lease no more
                                   (of a log: 1 if the units may be booked later than that, else 0)
                      reset        key, limit, detail (text), 0, 0, 0
  ARGV[2]  now_us, "" for the clock of Redis (tests pass a number)
  returns  integers: now_us, then per request
             take, peek   status (1 granted, 0 refused, -1 a value cannot be read, -2 too many buckets under one key),
                          and unless that is negative: replayed (0, 1), then per part short (0 no, 1 now, 2 never,
                          3 stale rules), units, and what the bucket holds as of now:
                          packed x, y; listed used, wait_us, reset_us
             verb 4       x of each bucket, if that says all (granted, y is 0); or -1, then as for a take
             verb 6       status (1, 0), then per limit units, x, y; or -1, then as for a give and as for a take
             give, reset  status (1, or negative), also of verb 7
             verb 8       status (1 given, 2 given before, 3 too late, or negative: nothing was given)

  Nothing is written before every request of the batch has been decided, and each changed key is written once. Tables
  are made once per batch, not per request: that is most of the speed.
]]
--- @include "batch"
--- @include "values"
--- @include "plain"

-- What only some batches need is made by the first request that does: making functions is most of what a call costs
-- before its first request.
local function make_leased()
--- @include "leased"
  return { take_leased, give_plain, held_room, advanced_held, refunded }
end

local function make_whole()
--- @include "whole"
  return { store_whole, write }
end

local leased, whole, verbs
local function make_verbs()
  leased, whole = leased or make_leased(), whole or make_whole()
  local held_room, advanced_held, refunded, write = leased[3], leased[4], leased[5], whole[2]
--- @include "packed"
--- @include "listed"
--- @include "work"
--- @include "verbs"
  return VERBS
end

at_length = function(what, ...)
  verbs = verbs or make_verbs()
  return verbs[what](...)
end

local input = cjson.decode(ARGV[1])
limits, sets, texts, numbers = input[1], input[2], input[3], input[4]

now_us = tonumber(ARGV[2])
if not now_us then
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
end

raw = call('MGET', unpack(keys))
prepare_limits()

-- What is written out behind them is not a request.
local last = #numbers
local function decide_all()
  local at, take_leased, give_plain = 1
  say(now_us)
  while at < last do
    local verb = numbers[at]
    if verb == 4 then
      local key, set, cost, count = numbers[at + 1], numbers[at + 2], numbers[at + 3], numbers[at + 4]
      for each = key, key + count - 1 do take_plain(each, set, cost) end
      at = at + 5
    elseif verb == 6 or verb == 7 then
      if not take_leased then
        leased = leased or make_leased()
        take_leased, give_plain = leased[1], leased[2]
      end
      at = verb == 6 and take_leased(at) or give_plain(at)
    else
      local op, parts = numbers[at + 1], numbers[at + 2]
      local first = verb == 8 and at + 5 or at + 3
      at_length(verb, first, parts, op == 0 and '' or texts[op])
      at = first + 6 * parts
    end
  end
end

-- Values are read without a guard, which costs; when one of them cannot be read, all is decided again with it.
-- Nothing was written yet, so what was decided is forgotten. Verbs are made anew, because they keep lists.
if not pcall(decide_all) then
  layout_by_key, bases = {}, {}
  dirty_keys, dirty_count, lows, highs, relaid, aged = {}, 0, {}, {}, {}, {}
  reply, said, guarded, verbs = {}, 0, true, nil
  decide_all()
end

for i = 1, dirty_count do
  local key = dirty_keys[i]
  if aged[key] or relaid[key] then
    whole = whole or make_whole()
    whole[1](key, layout_by_key[key])
  else
    store_states(key)
  end
end
if verbs then
  verbs.store_lists()
  verbs.store_marks()
end
return reply
