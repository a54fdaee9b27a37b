--[[
  Applies a batch of requests to buckets: each request all or nothing, all of them at one instant of Redis time.

  KEYS     the values the batch touches. A packed value holds buckets of three numbers each (include/packed.lua); a
           listed value holds one bucket that is a list (include/listed.lua). The name of a key says which kind it is.
  ARGV[1]  JSON [limits, sets, texts, numbers]; indexes are 1-based, text 0 is the empty string
             limit    [generation, code, capacity, tick_us, a, b, id, shape, hold]
                      code   1 token, 2 leaky, 3 fixed, 4 sliding, 5 log, 6 concurrency
                      a, b   code 1, 2: subunits per unit and per tick; 3, 4: window in ticks, 0; 5, 6: window in us, 0
                      shape  the first six, and hold unless it is 0, as one string
                      hold   longest time that units stay on lease, in ticks; 0: the limit is not leased
             set      limits that requests charge together, each with its own bucket
             numbers  the requests one after another, each in one of these forms:
                      0 take, 1 peek, 2 give, 3 reset, 5 take that may name a bucket twice, 9 take with pairs:
                        verb, op id (text), number of items, then per item six numbers:
                        take, peek   key, limit, detail (text), min, max, kind + 8 * pair + 524288 * seed
                                     kind   0 enforce, 1 shadow, 2 force, 3 hold, 4 counterfactual
                                     pair   0: none
                                     seed   counterfactual: key of the live bucket, whose name is that of the limit
                                            without its first 11 characters; 0: none
                        give         key, limit, detail (text), units, booked_us, settled: units no longer on lease
                                     (log: 1 if the units may be booked later than booked_us, else 0)
                        reset        key, limit, detail (text), 0, 0, 0
                      4 plain takes: verb, key, set, cost, count. Takes `cost` of the set from `count` consecutive
                        keys; packed buckets in one value, all enforced, without op id and detail
                      6 lease take: verb, key, set, cost, then per limit of the set: max, kind, number of gives,
                        and per give: units, booked_us, settled
                      7 give to a packed bucket: verb, key, set of one, units, booked_us, settled
                      8 give at most once, until until_us: verb, op id (text), number of items, key of the idempotency
                        record, until_us, then items as of a give
  ARGV[2]  now_us; absent for the clock of Redis (tests pass a number)
  returns  integers: now_us, then per request
             take, peek   status (1 granted, 0 refused, -1 unreadable value, -2 too many buckets under one key); unless
                          negative: replayed (0, 1), then per item short (0 no, 1 now, 2 never, 3 stale rules), units,
                          and the bucket as of now: packed x, y; listed used, wait_us, reset_us
             verb 4       per bucket x, if all were granted and every y is 0; else -1, then as for a take
             verb 6       status (1, 0), then per limit units, x, y; or -1, then as for a give and as for a take
             give, reset  status (1, or negative), also of verb 7
             verb 8       status (1 given, 2 given before, 3 too late, or negative: nothing was given)

  A call with one take, plain or of a lease, has flat arguments instead, and the reply of verb 4 or 6
  (include/single.lua):
  KEYS[1]  the value
  ARGV     cost, or 'lease'; per limit two arguments: name and shape of the bucket, as in the layout of a value, and
           the numbers "capacity tick_us a b", of a fixed window "capacity window_us 1 0"; of a lease followed by
           " hold min max kind", and per give " units booked_us settled"; then now_us, if it is given

  Nothing is written before every request of the batch has been decided, and each changed key is written once. Tables
  are created once per batch, not per request, because creating them dominates the run time.
]]
--- @include "limits"
--- @include "format"
-- The time is the last argument, if it is given.
local now_us = ARGV[2] and tonumber(ARGV[#ARGV])
if not now_us then
  local time = call('TIME')
  now_us = time[1] * 1000000 + time[2]
end
local raw = call('MGET', unpack(KEYS))

-- Functions are created when they are needed: creating closures and their upvalues dominates the fixed cost of a call.
local function make_ttl(now_us, ttl_period)
--- @include "ttl"
  return { latest_end_us, retention_us, ttl_seconds, ends_us }
end

local function make_items(now_us, position)
--- @include "items"
  return held_room, advanced_held, refunded, advanced_to, given_back, units_of_item, charged_item
end

local cost = tonumber(ARGV[1])
local is_single = cost or ARGV[1] == 'lease'
if is_single then
  repeat
--- @include "single"
  until true
end

-- Separate function: otherwise Lua would initialise 150 locals on every short call.
local function run_batch()
--- @include "batch"
--- @include "values"
--- @include "plain"

local items
local function make_leased()
  items = items or { make_items(now_us, position) }
  local refunded, advanced_to, given_back = items[3], items[4], items[5]
  local units_of_item, charged_item = items[6], items[7]
--- @include "leased"
  return { take_leased, give_plain }
end

local function make_rewrite()
--- @include "rewrite"
  return { rewrite_value, write, retention_us }
end

local leased, rewrite, verbs
local function make_verbs()
  items, rewrite = items or { make_items(now_us, position) }, rewrite or make_rewrite()
  local held_room, advanced_held, refunded = items[1], items[2], items[3]
  local write, retention_us = rewrite[2], rewrite[3]
--- @include "packed"
--- @include "listed"
--- @include "working_copies"
--- @include "verbs"
  return VERBS
end

slow_path = function(name, ...)
  verbs = verbs or make_verbs()
  return verbs[name](...)
end

local input = is_single and batch_of_single() or cjson.decode(ARGV[1])
limits, sets, texts, numbers = input[1], input[2], input[3], input[4]
prepare_limits()
for i = 1, #sets do
  local set = sets[i]
  for j = 1, #set do set[j] = limits[set[j]] end
end

-- The slow path appends items behind the last request.
local last = #numbers
local function decide_all()
  local at, take_leased, give_plain = 1
  push(now_us)
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
      local op, items = numbers[at + 1], numbers[at + 2]
      local first = verb == 8 and at + 5 or at + 3
      slow_path(verb, first, items, op == 0 and '' or texts[op])
      at = first + 6 * items
    end
  end
end

-- The first pass reads values without pcall, which is slow. If a value is unreadable, the whole batch is decided again
-- with pcall: nothing was written yet. The verbs are recreated because they cache lists.
if not pcall(decide_all) then
  layout_by_key, bases = {}, {}
  dirty_keys, dirty_count, first_dirty, last_dirty, layout_changed, ttl_due = {}, 0, {}, {}, {}, {}
  reply, reply_count, uses_pcall, verbs = {}, 0, true, nil
  decide_all()
end

for i = 1, dirty_count do
  local key = dirty_keys[i]
  if ttl_due[key] or layout_changed[key] then
    rewrite = rewrite or make_rewrite()
    rewrite[1](key, layout_by_key[key])
  else
    store_states(key)
  end
end
if verbs then
  verbs.store_lists()
  verbs.store_records()
end
return reply
end

return run_batch()
