--[[
  The verbs of requests. A request is decided as a whole before any of its items is charged.
]]
-- By item: units to charge if the request is granted, why they are short, and the first item of the same bucket.
local units_of, shorts, roots = {}, {}, {}

-- Returns the units to charge if the request is granted, and why fewer than `low` are available. `room`: units that may
-- go on lease.
local function grantable(capacity, in_use, low, high, kind, stale, room)
  local short = NOT_SHORT
  if stale then short = STALE
  elseif low > capacity then short = NEVER
  elseif in_use + low > capacity then short = NOW end
  if kind == KIND_FORCE then return short == STALE and 0 or high, short end
  if short ~= NOT_SHORT then return 0, short end
  return min(high, capacity - in_use, kind == KIND_HOLD and room or low + room), short
end

-- Returns the first item of the same bucket, and the units that earlier items take from it.
local function earlier_uses(at, item)
  local root, taken = item, 0
  local here = at + 6 * (item - 1)
  for other = item - 1, 1, -1 do
    local there, same = at + 6 * (other - 1), true
    for field = 0, 2 do same = same and numbers[there + field] == numbers[here + field] end
    if same then root, taken = other, taken + units_of[other] end
  end
  return root, taken
end

-- Loads the counterfactual buckets, before an enforced charge migrates the live bucket that they start from.
local function load_counterfactuals(at, items, keeps)
  for item = 1, items do
    local i = at + 6 * (item - 1)
    local number = numbers[i + 5]
    if number % KINDS == KIND_COUNTERFACTUAL then
      local seed = floor(number / KINDS_AND_PAIRS)
      local status = load_counterfactual(item, numbers[i], limits[numbers[i + 1]], numbers[i + 2], seed, keeps)
      if status < 0 then return status end
    end
  end
  return 0
end

local function pair_of(number) return floor(number / KINDS) % PAIRS end

-- Whether the counterfactual charges of a pair are charged. Does not depend on the enforced charges of the pair.
local function charges_pair(at, items, pair)
  for item = 1, items do
    local number = numbers[at + 6 * (item - 1) + 5]
    local kind = number % KINDS
    if shorts[item] ~= NOT_SHORT then
      if kind == KIND_COUNTERFACTUAL and pair_of(number) == pair then return false end
      if kind == KIND_ENFORCE and pair_of(number) ~= pair then return false end
    end
  end
  return true
end

-- Returns whether all items are granted, or a negative status. `repeats`: several items may name one bucket.
local function decide(at, items, op_id, keeps, repeats)
  local granted = true
  for item = 1, items do
    local i = at + 6 * (item - 1)
    local limit, kind = limits[numbers[i + 1]], numbers[i + 5] % KINDS
    local root, in_use = item, 0
    if repeats then root, in_use = earlier_uses(at, item) end
    if root == item and kind ~= KIND_COUNTERFACTUAL then
      local status = load_bucket(item, numbers[i], limit, numbers[i + 2], keeps)
      if status < 0 then return status end
    end
    roots[item] = root
    if limit[CODE] >= LOG then in_use = in_use + used_list(limit[CODE], lists[root], op_id)
    else in_use = in_use + used(limit[CODE], limit[TICK], limit[A], ats[root], xs[root], ys[root]) end
    local room = held_room(limit[CAPACITY], limit[HOLD], ys[root])
    local units, short = grantable(limit[CAPACITY], in_use, numbers[i + 3], numbers[i + 4], kind, stales[root], room)
    units_of[item], shorts[item] = units, short
    if short ~= NOT_SHORT and kind == KIND_ENFORCE then granted = false end
  end
  return granted
end

local function is_renewal(at, items, op_id)
  local permits = false
  for item = 1, items do
    if limits[numbers[at + 6 * (item - 1) + 1]][CODE] == CONCURRENCY then
      if not permit_index(lists[roots[item]], op_id) then return false end
      permits = true
    end
  end
  return permits
end

local function reply_list(item, limit, low, spent, op_id)
  local short, list = shorts[item], lists[roots[item]]
  local code, window_us = limit[CODE], limit[A]
  push(short)
  push(spent)
  push(used_list(code, list, nil))
  push(wait_list_us(code, list, window_us, limit[CAPACITY], low, op_id))
  push(ends_list_us(code, list, window_us) - now_us)
end

local function run(at, items, op_id, commits, repeats, paired)
  local status = paired and load_counterfactuals(at, items, commits) or 0
  local granted = status < 0 and status or decide(at, items, op_id, commits, repeats)
  if granted ~= true and granted ~= false then return push(granted) end
  push(granted and 1 or 0)
  push(op_id ~= '' and commits and is_renewal(at, items, op_id) and 1 or 0)
  for item = 1, items do
    local i = at + 6 * (item - 1)
    local limit = limits[numbers[i + 1]]
    local number, charges = numbers[i + 5], granted
    local kind = number % KINDS
    if kind == KIND_FORCE then charges = true
    elseif kind == KIND_COUNTERFACTUAL then charges = charges_pair(at, items, pair_of(number)) end
    local spent = commits and charges and units_of[item] or 0
    local root = roots[item]
    if spent > 0 then
      local held = 0
      if limit[HOLD] > 0 and kind ~= KIND_FORCE then
        held = kind == KIND_HOLD and spent or max(0, spent - numbers[i + 3])
      end
      spend(root, numbers[i], limit, numbers[i + 2], spent, op_id, held)
    end
    if limit[CODE] >= LOG then
      reply_list(item, limit, numbers[i + 3], spent, op_id)
    else
      local n = reply_count
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = shorts[item], spent, xs[root], ys[root]
      reply_count = n + 4
    end
  end
end

local function take(at, items, op_id) run(at, items, op_id, true, false, false) end
local function take_repeating(at, items, op_id) run(at, items, op_id, true, true, false) end
local function take_paired(at, items, op_id) run(at, items, op_id, true, true, true) end
local function peek(at, items, op_id) run(at, items, op_id, false, true, true) end

local function refund(item, limit, units, booked_us, op_id, settled)
  if limit[CODE] >= LOG then
    refund_list(limit[CODE], lists[item], limit[A], units, booked_us, op_id, settled > 0)
  else
    xs[item], ys[item] =
      refunded(limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], ats[item], xs[item], ys[item], units,
        booked_us, settled)
  end
end

-- Skips buckets that newer rules wrote, and buckets that are full.
local function give_items(at, items, op_id)
  local worst = 1
  for item = 1, items do
    local i = at + 6 * (item - 1)
    local key, limit, detail, units = numbers[i], limits[numbers[i + 1]], numbers[i + 2], numbers[i + 3]
    local settled = numbers[i + 5]
    local status = load_bucket(item, key, limit, detail, false)
    if status < 0 then
      worst = status
    elseif units < 0 and not stales[item] then
      spend(item, key, limit, detail, -units, op_id, 0)
    elseif (units > 0 or (settled > 0 and limit[HOLD] > 0)) and not stales[item] and is_live(item, limit) then
      refund(item, limit, units, numbers[i + 4], op_id, settled)
      keep(item, key, limit, detail)
    end
  end
  return worst
end

local function give(at, items, op_id) push(give_items(at, items, op_id)) end

-- Idempotency records by key: when each expires.
local records = {}

-- All or nothing: an unreadable value fails the whole give, so that it can be retried.
local function give_once(at, items, op_id)
  local record, until_us = numbers[at - 2], numbers[at - 1]
  if now_us > until_us then return push(3) end
  if raw[record] or records[record] then return push(2) end
  for item = 1, items do
    local i = at + 6 * (item - 1)
    if load_bucket(item, numbers[i], limits[numbers[i + 1]], numbers[i + 2], false) == UNREADABLE then
      return push(UNREADABLE)
    end
  end
  give_items(at, items, op_id)
  records[record] = until_us
  push(1)
end

local function store_records()
  for record, until_us in pairs(records) do write(keys[record], '1', until_us) end
end

-- Drops an unreadable value as a whole: resetting a bucket is the way to repair it.
local function reset(at)
  local key, limit = numbers[at], limits[numbers[at + 1]]
  if limit[CODE] >= LOG then
    set_list(key, limit[CODE], fresh_list(limit[CODE], limit[A], limit[GENERATION]))
    kept_lists[key], list_exists[key] = false, false
  elseif not layout_at(key) then
    layout_by_key[key], bases[key], ttl_due[key] = layout_of(''), state_count, true
    mark_dirty(key, 0)
  else
    local layout = layout_by_key[key]
    local index = layout[INDEX_BY_NAME][name_of(limit, numbers[at + 2])]
    if index then
      -- Position 0 looks long unused, so the next change renews the TTL.
      local r = bases[key] + 3 * index - 2
      states[r], states[r + 1], states[r + 2] = 0, 0, 0
      mark_dirty(key, index)
    end
  end
  push(1)
end

-- Appends an item in its general form to the numbers of the batch.
local function append(key, limit, fourth, fifth, sixth)
  local n = #numbers
  numbers[n + 1], numbers[n + 2], numbers[n + 3] = key, limit[INDEX], 0
  numbers[n + 4], numbers[n + 5], numbers[n + 6] = fourth, fifth, sixth
end

-- Slow path of a plain take.
local function slow_take(key, set, cost)
  local at = #numbers + 1
  for item = 1, #set do append(key, set[item], cost, cost, KIND_ENFORCE) end
  push(-1)
  take(at, #set, '')
end

-- Slow path of a lease take: a give, then a take. Returns the index of the next request.
local function slow_take_leased(first)
  local key, set, low = numbers[first + 1], sets[numbers[first + 2]], numbers[first + 3]
  local at, gives, i = #numbers + 1, 0, first + 4
  for item = 1, #set do
    local own = numbers[i + 2]
    i = i + 3
    for _ = 1, own do
      append(key, set[item], numbers[i], numbers[i + 1], numbers[i + 2])
      gives, i = gives + 1, i + 3
    end
  end
  push(-1)
  give(at, gives, '')
  at, i = #numbers + 1, first + 4
  for item = 1, #set do
    append(key, set[item], low, numbers[i], numbers[i + 1])
    i = i + 3 + 3 * numbers[i + 2]
  end
  take(at, #set, '')
  return i
end

-- Slow path of a plain give.
local function slow_give(first, next_at)
  local at = #numbers + 1
  append(numbers[first + 1], sets[numbers[first + 2]][1], numbers[first + 3], numbers[first + 4], numbers[first + 5])
  give(at, 1, '')
  return next_at
end

-- By number as in the batch; slow paths and functions for apply.lua by name.
local VERBS = {
  [0] = take,
  peek,
  give,
  reset,
  [5] = take_repeating,
  [8] = give_once,
  [9] = take_paired,
  plain = slow_take,
  leased = slow_take_leased,
  given = slow_give,
  store_lists = store_lists,
  store_records = store_records,
}
