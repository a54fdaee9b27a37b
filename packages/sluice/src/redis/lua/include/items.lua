--[[
  Units on lease, and the decision about one packed bucket of a take: the maths of every take of a lease, and of plain
  takes that come alone. Repeats some arithmetic of include/packed.lua, so that such a call need not create its
  functions.
]]
-- y of a token bucket: units on lease since the previous epoch × PREVIOUS + those since this one. Units on lease do
-- not refill. The three constants equal those of src/algorithms/held.ts.
local PREVIOUS, HELD_MAX, HELD_SHARE = 65536, 65535, 0.75

-- Returns x after `ticks` during which `held` units were on lease.
local function owed_after(ticks, a, b, x, held)
  local owed, least = x - ticks * b, held * a
  if least > x then return x end
  return owed > least and owed or least
end

-- Returns how many more units of a bucket can go on lease.
local function held_room(limit, y)
  if limit[HOLD] == 0 then return limit[CAPACITY] end
  local current = y % PREVIOUS
  return max(0, min(HELD_MAX, floor(limit[CAPACITY] * HELD_SHARE) - (y - current) / PREVIOUS) - current)
end

local function advanced_held(now, a, b, hold, at, x, y)
  local current = y % PREVIOUS
  local first_end = hold == 0 and at or (floor(at / hold) + 1) * hold
  local held = current + (y - current) / PREVIOUS
  if now < first_end then return owed_after(now - at, a, b, x, held), y end
  x = owed_after(first_end - at, a, b, x, held)
  local second_end = first_end + hold
  if now < second_end then return owed_after(now - first_end, a, b, x, current), current * PREVIOUS end
  x = owed_after(hold, a, b, x, current)
  return owed_after(now - second_end, a, b, x, 0), 0
end

-- Takes `settled` units off the lease, in the epoch in which they were booked, and gives back as many of `units` in
-- full. Returns x, y and the units left to give back.
local function settled_held(a, hold, x, y, now, booked, units, settled)
  local age, current = floor(now / hold) - floor(booked / hold), y % PREVIOUS
  local counted = age == 0 and current or age == 1 and (y - current) / PREVIOUS or 0
  if counted < settled then return x, y, units end
  y = y - settled * (age == 0 and 1 or PREVIOUS)
  if units == 0 then return x, y, 0 end
  return max(0, x - min(units, settled) * a), y, max(0, units - settled)
end

-- Returns x and y after `units` were given back and `settled` units taken off the lease.
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

-- By item: the new state, the units to charge, and whether gives changed the state.
local next_xs, next_ys, next_units, has_gives = {}, {}, {}, {}

-- Advances a state to now.
local function advance_to_now(limit, at, x, y)
  local code, now = limit[CODE], limit[NOW_AT]
  if code > LEAKY then
    if at == now then return x, y end
    return 0, (code == SLIDING and now - at == 1) and x or 0
  end
  if y ~= 0 then x, y = advanced_held(now, limit[A], limit[B], limit[HOLD], at, x, y)
  else x = max(0, x - (now - at) * limit[B]) end
  return x, x == 0 and 0 or y -- nothing owed: equal to a new bucket, whatever was on lease
end

local function units_in_use(limit, x, y)
  local code, a = limit[CODE], limit[A]
  if code <= LEAKY then return ceil(x / a) end
  if y == 0 then return x end
  return x + ceil(y * (a - floor(now_us / limit[TICK]) + limit[NOW_AT] * a) / a)
end

-- Decides one item; nil for the slow path. Also returns the index of the next item.
local function decide_item(item, limit, at, x, y, low, i)
  local high, kind, gives, capacity = numbers[i], numbers[i + 1], numbers[i + 2], limit[CAPACITY]
  if at > limit[NOW_AT] or low > capacity then return nil end
  x, y = advance_to_now(limit, at, x, y)
  i = i + 3
  has_gives[item] = false
  for _ = 1, gives do
    local units, booked_us, settled = numbers[i], numbers[i + 1], numbers[i + 2]
    if (x > 0 or y > 0) and (units > 0 or (settled > 0 and limit[HOLD] > 0)) then
      x, y = refunded(limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], limit[NOW_AT], x, y, units, booked_us,
        settled)
      if limit[CODE] <= LEAKY and x == 0 then y = 0 end -- equal to a new bucket
      has_gives[item] = true
    end
    i = i + 3
  end
  local in_use, units = units_in_use(limit, x, y), 0
  local granted = in_use + low <= capacity
  if granted then
    local room = held_room(limit, y)
    units = min(high, capacity - in_use, kind == KIND_HOLD and room or low + room)
  end
  next_xs[item], next_ys[item], next_units[item] = x, y, units
  return granted or kind == KIND_HOLD, i
end

local function charge_item(item, limit, low, kind)
  local code, units = limit[CODE], next_units[item]
  local most = code == SLIDING and SLIDING_MAX or STATE_MAX
  next_xs[item] = min(most, next_xs[item] + units * (code <= LEAKY and limit[A] or 1))
  if limit[HOLD] > 0 then
    next_ys[item] = next_ys[item] + (kind == KIND_HOLD and units or max(0, units - low))
  end
end
