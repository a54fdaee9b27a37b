--[[
  Units on lease, and the short ways of the requests that leases make.

  A take of a lease is of packed buckets in one value, each enforced or held ahead of need, of one cost, and asks for
  more than is needed now. What became of units that were charged before is told along with it, or by a plain give. What
  is not about units on lease is the maths of include/packed.lua, without making its functions.
]]
-- y of a token bucket is the units on lease of the epoch before × BEFORE + those of this one. What is on lease does not
-- flow back: src/algorithms/held.ts, where the same three numbers stand.
local BEFORE, HELD_MAX, HELD_SHARE = 65536, 65535, 0.75

-- x after some ticks in which as many units are held.
local function owed_after(ticks, a, b, x, held)
  local owed, least = x - ticks * b, held * a
  if least > x then return x end
  return owed > least and owed or least
end

-- How many more units of a bucket can be on lease.
local function held_room(limit, y)
  if limit[HOLD] == 0 then return limit[CAPACITY] end
  local current = y % BEFORE
  return max(0, min(HELD_MAX, floor(limit[CAPACITY] * HELD_SHARE) - (y - current) / BEFORE) - current)
end

local function advanced_held(now, a, b, hold, at, x, y)
  local current = y % BEFORE
  local first_end = hold == 0 and at or (floor(at / hold) + 1) * hold
  local held = current + (y - current) / BEFORE
  if now < first_end then return owed_after(now - at, a, b, x, held), y end
  x = owed_after(first_end - at, a, b, x, held)
  local second_end = first_end + hold
  if now < second_end then return owed_after(now - first_end, a, b, x, current), current * BEFORE end
  x = owed_after(hold, a, b, x, current)
  return owed_after(now - second_end, a, b, x, 0), 0
end

-- Takes `settled` units off the lease of the epoch in which they were booked. Those that come back count whole; the
-- number of the others comes third.
local function settled_held(a, hold, x, y, now, booked, units, settled)
  local age, current = floor(now / hold) - floor(booked / hold), y % BEFORE
  local counted = age == 0 and current or age == 1 and (y - current) / BEFORE or 0
  if counted < settled then return x, y, units end
  y = y - settled * (age == 0 and 1 or BEFORE)
  if units == 0 then return x, y, 0 end
  return max(0, x - min(units, settled) * a), y, max(0, units - settled)
end

-- What is left of a state as of now when units of it come back, and `settled` of them are on lease no more.
local function refunded(code, tick, a, b, hold, at, x, y, units, booked_us, settled)
  local booked = position(code, tick, a, booked_us)
  if code <= LEAKY then
    if hold > 0 and settled > 0 then
      x, y, units = settled_held(a, hold, x, y, at, booked, units, settled)
    end
    if units == 0 then return x, y end
    local age = max(0, at - booked)
    return max(0, x - max(0, units * a - age * b)), y
  end
  if at == booked then return max(0, x - units), y end
  if code == SLIDING and at == booked + 1 then return x, max(0, y - units) end
  return x, y
end

-- By part: the state to be, the units to charge, and whether it changes even if they are not.
local next_xs, next_ys, next_units, told = {}, {}, {}, {}

-- A state brought to now.
local function brought_to_now(limit, at, x, y)
  local code, now = limit[CODE], limit[NOW_AT]
  if code > LEAKY then
    if at == now then return x, y end
    return 0, (code == SLIDING and now - at == 1) and x or 0
  end
  if y ~= 0 then x, y = advanced_held(now, limit[A], limit[B], limit[HOLD], at, x, y)
  else x = max(0, x - (now - at) * limit[B]) end
  return x, x == 0 and 0 or y -- nothing owed: as good as new, whatever was on lease
end

local function units_in_use(limit, x, y)
  local code, a = limit[CODE], limit[A]
  if code <= LEAKY then return ceil(x / a) end
  if y == 0 then return x end
  return x + ceil(y * (a - floor(now_us / limit[TICK]) + limit[NOW_AT] * a) / a)
end

-- Decides on one part; nil when it has to be done at length. Also returns where the next part begins.
local function decide_part(part, limit, at, x, y, low, i)
  local high, kind, gives, capacity = numbers[i], numbers[i + 1], numbers[i + 2], limit[CAPACITY]
  if at > limit[NOW_AT] or low > capacity then return nil end
  x, y = brought_to_now(limit, at, x, y)
  i = i + 3
  told[part] = false
  for _ = 1, gives do
    local units, booked_us, settled = numbers[i], numbers[i + 1], numbers[i + 2]
    if (x > 0 or y > 0) and (units > 0 or (settled > 0 and limit[HOLD] > 0)) then
      x, y = refunded(limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], limit[NOW_AT], x, y, units, booked_us,
        settled)
      if limit[CODE] <= LEAKY and x == 0 then y = 0 end -- as good as new
      told[part] = true
    end
    i = i + 3
  end
  local in_use, units = units_in_use(limit, x, y), 0
  local granted = in_use + low <= capacity
  if granted then
    local room = held_room(limit, y)
    units = min(high, capacity - in_use, kind == ALL_HELD and room or low + room)
  end
  next_xs[part], next_ys[part], next_units[part] = x, y, units
  return granted or kind == ALL_HELD, i
end

local function charge_part(part, limit, low, kind)
  local code, units = limit[CODE], next_units[part]
  local most = code == SLIDING and SLIDING_MAX or STATE_MAX
  next_xs[part] = min(most, next_xs[part] + units * (code <= LEAKY and limit[A] or 1))
  if limit[HOLD] > 0 then
    next_ys[part] = next_ys[part] + (kind == ALL_HELD and units or max(0, units - low))
  end
end

local function write_part(key, seat, limit, part)
  local r = bases[key] + 3 * seat
  local at, now = states[r - 2], limit[NOW_AT]
  if limit[CODE] <= LEAKY then
    if at < limit[PERIOD_AT] then aged[key] = true end
  elseif at ~= now then aged[key] = true end
  states[r - 2], states[r - 1], states[r] = now, next_xs[part], next_ys[part]
  mark_dirty(key, seat)
end

-- `first`: where the request begins. Returns where the next one does. What another limit wrote, what a clock that
-- stepped back left ahead of now, and costs above the limit go `at_length`.
local function take_leased(first)
  local key, set_index, low = numbers[first + 1], numbers[first + 2], numbers[first + 3]
  local found, layout = seats_at(key, set_index)
  if not found then return at_length('leased', first) end
  local set, base, all, i = sets[set_index], bases[key], true, first + 4
  for part = 1, #set do
    local at, x, y, granted = 0, 0, 0
    if found[part] <= layout[COUNT] then
      local r = base + 3 * found[part]
      at, x, y = states[r - 2], states[r - 1], states[r]
    end
    granted, i = decide_part(part, set[part], at, x, y, low, i)
    if granted == nil then return at_length('leased', first) end
    all = all and granted
  end
  if all and found[#set + 1] ~= layout then extend(key, found[#set + 1]) end
  say(all and 1 or 0)
  local kind_at = first + 5
  for part = 1, #set do
    local limit, units = set[part], all and next_units[part] or 0
    if units > 0 then charge_part(part, limit, low, numbers[kind_at]) end
    if units > 0 or told[part] then write_part(key, found[part], limit, part) end
    reply[said + 1], reply[said + 2], reply[said + 3] = units, next_xs[part], next_ys[part]
    said = said + 3
    kind_at = kind_at + 3 + 3 * numbers[kind_at + 1]
  end
  return i
end

-- What came back of one bucket, or is on lease no more. Returns where the next request begins.
local function give_plain(first)
  local key, set_index, next_at = numbers[first + 1], numbers[first + 2], first + 6
  local found, layout = seats_at(key, set_index)
  if not found then return at_length('given', first, next_at) end
  local limit, seat = sets[set_index][1], found[1]
  if seat > layout[COUNT] then -- to what is as good as new there is nothing to give
    say(1)
    return next_at
  end
  local r = bases[key] + 3 * seat
  local at, units, settled = states[r - 2], numbers[first + 3], numbers[first + 5]
  if at > limit[NOW_AT] then return at_length('given', first, next_at) end
  local x, y = brought_to_now(limit, at, states[r - 1], states[r])
  if (x > 0 or y > 0) and (units > 0 or (settled > 0 and limit[HOLD] > 0)) then
    next_xs[1], next_ys[1] = refunded(limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], limit[NOW_AT], x, y,
      units, numbers[first + 4], settled)
    write_part(key, seat, limit, 1)
  end
  say(1)
  return next_at
end
