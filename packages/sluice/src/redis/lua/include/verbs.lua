--[[
  The verbs: what a request does to its buckets. Everything is decided before anything is charged.
]]
local NOT_SHORT, NOW, NEVER, STALE = 0, 1, 2, 3
local ENFORCE, SHADOW, FORCE = 0, 1, 2

-- What is worked out once per batch for each limit, behind its numbers: where a state stands now, how many parts a
-- bucket holds, where a state stood when the present period of TTLs began, and which limit it is.
local NOW_AT, FULL, PERIOD_AT, INDEX = 9, 10, 11, 12
local function prepare_limits()
  local period_us = floor(now_us / PERIOD_US) * PERIOD_US
  for i = 1, #limits do
    local limit = limits[i]
    limit[NOW_AT] = position(limit[2], limit[4], limit[5], now_us)
    limit[FULL] = limit[3] * limit[5]
    limit[PERIOD_AT] = period_us / limit[4]
    limit[INDEX] = i
  end
  for i = 1, #sets do
    local set = sets[i]
    for j = 1, #set do set[j] = limits[set[j]] end
  end
end

-- By part: units to charge if the request is granted, why it is short, and the first part that uses the same bucket.
local units_of, shorts, roots = {}, {}, {}

-- Units to charge if the request is granted, and why `low` units cannot be had.
local function ask(capacity, in_use, low, high, kind, stale)
  local short = NOT_SHORT
  if stale then short = STALE
  elseif low > capacity then short = NEVER
  elseif in_use + low > capacity then short = NOW end
  if kind == FORCE then return short == STALE and 0 or high, short end
  if short ~= NOT_SHORT then return 0, short end
  return min(high, capacity - in_use), short
end

-- The first part that uses the same bucket, and what the uses in between would take.
local function earlier_uses(at, part)
  local root, taken = part, 0
  local here = at + 6 * (part - 1)
  for other = part - 1, 1, -1 do
    local there, same = at + 6 * (other - 1), true
    for field = 0, 2 do same = same and numbers[there + field] == numbers[here + field] end
    if same then root, taken = other, taken + units_of[other] end
  end
  return root, taken
end

-- Whether all parts may be had, or a negative status. A bucket is asked for twice only if the request `repeats`.
local function decide(at, parts, op_id, keeps, repeats)
  local granted = true
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local limit, kind = limits[numbers[i + 1]], numbers[i + 5]
    local root, in_use = part, 0
    if repeats then root, in_use = earlier_uses(at, part) end
    if root == part then
      local status = settle(part, numbers[i], limit, numbers[i + 2], keeps)
      if status < 0 then return status end
    end
    roots[part] = root
    if limit[2] >= LOG then in_use = in_use + used_list(limit[2], lists[root], op_id)
    else in_use = in_use + used(limit[2], limit[4], limit[5], ats[root], xs[root], ys[root]) end
    local units, short = ask(limit[3], in_use, numbers[i + 3], numbers[i + 4], kind, stales[root])
    units_of[part], shorts[part] = units, short
    if short ~= NOT_SHORT and kind == ENFORCE then granted = false end
  end
  return granted
end

local function is_renewal(at, parts, op_id)
  local permits = false
  for part = 1, parts do
    if limits[numbers[at + 6 * (part - 1) + 1]][2] == CONCURRENCY then
      if not permit_index(lists[roots[part]], op_id) then return false end
      permits = true
    end
  end
  return permits
end

local function answer_list(part, limit, low, spent, op_id)
  local short, list = shorts[part], lists[roots[part]]
  local code, window_us = limit[2], limit[5]
  say(short)
  say(spent)
  say(used_list(code, list, nil))
  say(short == NOW and wait_list_us(code, list, window_us, limit[3], low, op_id) or 0)
  say(ends_list_us(code, list, window_us) - now_us)
end

local function run(at, parts, op_id, commits, repeats)
  local granted = decide(at, parts, op_id, commits, repeats)
  if granted ~= true and granted ~= false then return say(granted) end
  say(granted and 1 or 0)
  say(op_id ~= '' and commits and is_renewal(at, parts, op_id) and 1 or 0)
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local limit = limits[numbers[i + 1]]
    local spent = commits and (granted or numbers[i + 5] == FORCE) and units_of[part] or 0
    local root = roots[part]
    if spent > 0 then spend(root, numbers[i], limit, numbers[i + 2], spent, op_id) end
    if limit[2] >= LOG then
      answer_list(part, limit, numbers[i + 3], spent, op_id)
    else
      local n = said
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = shorts[part], spent, xs[root], ys[root]
      said = n + 4
    end
  end
end

local function take(at, parts, op_id) run(at, parts, op_id, true, false) end
local function take_repeating(at, parts, op_id) run(at, parts, op_id, true, true) end
local function peek(at, parts, op_id) run(at, parts, op_id, false, true) end

-- The long way of a plain take: written out where the others are, and answered as they are.
local function take_at_length(key, set, cost)
  local at, n = #numbers + 1, #numbers
  for i = 1, #set do
    numbers[n + 1], numbers[n + 2], numbers[n + 3] = key, set[i][INDEX], 0
    numbers[n + 4], numbers[n + 5], numbers[n + 6] = cost, cost, ENFORCE
    n = n + 6
  end
  say(-1)
  take(at, #set, '')
end

-- Where a layout has the buckets of a set of limits: their seats, and behind them the layout with seats for all, which
-- is another one when it has not. False when another limit wrote one of them, or there would be too many.
local function find_set(layout, set)
  local found, text, count = {}, layout[TEXT], layout[COUNT]
  for i = 1, #set do
    local limit = set[i]
    local seat = layout[SEATS][limit[7]]
    if not seat then
      count = count + 1
      seat, text = count, text .. bucket_text(limit[7], limit[8])
    elseif layout[SHAPES][seat] ~= limit[8] then
      return false
    end
    found[i] = seat
  end
  if count > BUCKETS_MAX then return false end
  found[#set + 1] = layout_of(text)
  return found
end

-- x of a bucket with `cost` charged; nil when it takes more to tell, or there is too little.
local function afforded(limit, at, x, cost)
  local code, now = limit[2], limit[NOW_AT]
  if at > now then return nil end
  if code <= LEAKY then
    x = max(0, x - (now - at) * limit[6]) + cost * limit[5]
    return x <= limit[FULL] and x or nil
  end
  x = (at == now and x or 0) + cost
  return code == FIXED and x <= limit[3] and x or nil
end

-- The short way of a plain take: granted, by new buckets or by buckets that the same limits wrote. The maths of
-- include/packed.lua without its calls, which would be most of the time: the differential test runs both ways.
local function take_plain(key, set_index, cost)
  local set, layout = sets[set_index], layout_by_key[key]
  if layout == nil then layout = layout_at(key) end
  local found = layout and layout[FINDS][set_index]
  if found == nil then
    found = find_set(layout, set)
    layout[FINDS][set_index] = found
  end
  if not found then return take_at_length(key, set, cost) end

  local count, base, old_count = #set, bases[key], layout[COUNT]
  for i = 1, count do
    local limit, seat = set[i], found[i]
    local r = base + 3 * seat - 2
    local x
    if seat <= old_count then x = afforded(limit, states[r], states[r + 1], cost)
    else x = afforded(limit, limit[NOW_AT], 0, cost) end
    if not x then return take_at_length(key, set, cost) end
    xs[i] = x
  end

  if found[count + 1] ~= layout then
    extend(key, found[count + 1])
    base, aged[key] = bases[key], true
  end
  local low, high = found[1], found[1]
  for i = 1, count do
    local limit, seat, x = set[i], found[i], xs[i]
    local r, now = base + 3 * seat - 2, limit[NOW_AT]
    if limit[2] <= LEAKY then
      if states[r] < limit[PERIOD_AT] then aged[key] = true end
    elseif states[r] ~= now then
      aged[key] = true
    end
    states[r], states[r + 1] = now, x
    reply[said + i] = x
    if seat < low then low = seat elseif seat > high then high = seat end
  end
  said = said + count
  mark_dirty(key, low)
  if high ~= low then mark_dirty(key, high) end
end

local function refund(part, limit, units, booked_us, op_id)
  if limit[2] >= LOG then
    refund_list(limit[2], lists[part], units, booked_us, op_id)
  else
    xs[part], ys[part] =
      refunded(limit[2], limit[4], limit[5], limit[6], ats[part], xs[part], ys[part], units, booked_us)
  end
end

-- Older rules do not touch what newer ones wrote, and to a vacant bucket there is nothing to give.
local function give(at, parts, op_id)
  local worst = 1
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local key, limit, detail, units = numbers[i], limits[numbers[i + 1]], numbers[i + 2], numbers[i + 3]
    local status = settle(part, key, limit, detail, false)
    if status < 0 then
      worst = status
    elseif units < 0 and not stales[part] then
      spend(part, key, limit, detail, -units, op_id)
    elseif units > 0 and not stales[part] and is_live(part, limit) then
      refund(part, limit, units, numbers[i + 4], op_id)
      keep(part, key, limit, detail)
    end
  end
  say(worst)
end

-- A value that cannot be read is dropped whole: that is what a reset is for.
local function reset(at)
  local key, limit = numbers[at], limits[numbers[at + 1]]
  if limit[2] >= LOG then
    listed_values[key], list_codes[key] = fresh_list(limit[2], limit[5], limit[1]), limit[2]
    mark_dirty(key, 0)
  elseif not layout_at(key) then
    layout_by_key[key], bases[key], aged[key] = layout_of(''), state_count, true
    mark_dirty(key, 0)
  else
    local layout = layout_by_key[key]
    local seat = layout[SEATS][name_of(limit, numbers[at + 2])]
    if seat then
      local r, written = bases[key] + 3 * seat - 2, numbers_of(layout[SHAPES][seat])
      states[r], states[r + 1], states[r + 2] = position(written[2], written[4], written[5], now_us), 0, 0
      mark_dirty(key, seat)
    end
  end
  say(1)
end

local VERBS = { take, peek, give, reset, nil, take_repeating }
