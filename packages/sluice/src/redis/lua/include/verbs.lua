--[[
  The verbs: what a request does to its buckets. Everything is decided before anything is charged.
]]
local NOT_SHORT, NOW, NEVER, STALE = 0, 1, 2, 3
local ENFORCE, SHADOW, FORCE = 0, 1, 2

-- What is worked out once per batch for each limit, behind its numbers: where a state stands now, how many parts a
-- bucket holds, and where a state stood when the present period of TTLs began.
local NOW_AT, FULL, PERIOD_AT = 9, 10, 11
local function prepare_limits()
  local period_us = floor(now_us / PERIOD_US) * PERIOD_US
  for i = 1, #limits do
    local limit = limits[i]
    limit[NOW_AT] = position(limit[2], limit[4], limit[5], now_us)
    limit[FULL] = limit[3] * limit[5]
    limit[PERIOD_AT] = period_us / limit[4]
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

-- The long way of a take of one charge: written out where the others are, and answered as they are.
local function take_one_at_length(key, limit_index, cost)
  local at = #numbers + 1
  numbers[at], numbers[at + 1], numbers[at + 2] = key, limit_index, 0
  numbers[at + 3], numbers[at + 4], numbers[at + 5] = cost, cost, ENFORCE
  say(-1)
  take(at, 1, '')
end

-- The short way, for what most requests are: all charges enforced and granted, by new buckets or by buckets that the
-- same limits wrote. The maths of include/packed.lua without its calls, which would be most of the time: the
-- differential test runs both ways. x of the bucket with `cost` charged; nil when it takes more to tell.
local function afforded(limit, r, cost)
  local code, now = limit[2], limit[NOW_AT]
  local at, x = now, 0
  if r > 0 then at, x = record_ats[r], record_xs[r] end
  if code <= LEAKY and at <= now then
    x = max(0, x - (now - at) * limit[6]) + cost * limit[5]
    return x <= limit[FULL] and x or nil
  end
  return code == FIXED and at == now and x + cost <= limit[3] and x + cost or nil
end

local function keep_afforded(key, limit, r, x)
  if r == 0 then
    add_record(key, limit[7], limit[8], limit[NOW_AT], x, 0)
    aged[key] = true
    return mark_dirty(key, true)
  end
  if limit[2] <= LEAKY and record_ats[r] < limit[PERIOD_AT] then aged[key] = true end
  record_ats[r], record_xs[r] = limit[NOW_AT], x
  if dirty[key] ~= r then mark_dirty(key, offsets[r] and r or true) end
end

local function take_one(key, limit_index, cost)
  local limit, r = limits[limit_index], firsts[key]
  if r == nil then r = first_of(key) end
  local known = r == 0 or (r and shapes[r] == limit[8] and names[r] == limit[7])
  local x = known and afforded(limit, r, cost)
  if not x then return take_one_at_length(key, limit_index, cost) end
  keep_afforded(key, limit, r, x)
  said = said + 1
  reply[said] = x
end

-- The same for several charges, each of another bucket. False, and nothing done, when it takes more to tell.
local function take_short(at, parts)
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local limit, cost = limits[numbers[i + 1]], numbers[i + 3]
    local plain = limit[2] <= FIXED and numbers[i + 2] == 0 and numbers[i + 4] == cost and numbers[i + 5] == ENFORCE
    if not plain then return false end
    local key = numbers[i]
    local r = record_named(key, limit[7])
    local known = r and (shapes[r] == limit[8] or (r == 0 and record_counts[key] + parts <= BUCKETS_MAX))
    local x = known and afforded(limit, r, cost)
    if not x then return false end
    records[part], xs[part] = r, x
  end
  local n = said + 2
  reply[n - 1], reply[n] = 1, 0
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    keep_afforded(numbers[i], limits[numbers[i + 1]], records[part], xs[part])
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = NOT_SHORT, numbers[i + 3], xs[part], 0
    n = n + 4
  end
  said = n
  return true
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
  mark_dirty(key, true)
  if limit[2] >= LOG then
    listed_values[key], list_codes[key] = fresh_list(limit[2], limit[5], limit[1]), limit[2]
  else
    local name = name_of(limit, numbers[at + 2])
    local r, before = first_of(key) or 0, 0
    while r > 0 and names[r] ~= name do r, before = following[r], r end
    if r > 0 and before > 0 then following[before] = following[r]
    elseif r > 0 then firsts[key] = following[r] end
    firsts[key] = firsts[key] or 0
    record_counts[key] = max(0, (record_counts[key] or 0) - (r > 0 and 1 or 0))
  end
  say(1)
end

local function take_distinct(at, parts, op_id)
  if op_id ~= '' or not take_short(at, parts) then take(at, parts, op_id) end
end

local VERBS = { take_distinct, peek, give, reset, nil, take_repeating }
