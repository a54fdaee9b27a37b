--[[
  Units on lease, and the decision about one packed bucket of a take: the maths of every lease take, alone or in a
  batch. Repeats some arithmetic of include/packed.lua, so that such a call need not create its functions. Limits are
  passed as (code, capacity, tick, a, b, hold), without tables, and functions capture little: see include/single.lua.
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
local function held_room(capacity, hold, y)
  if hold == 0 then return capacity end
  local current = y % PREVIOUS
  local room = math.min(HELD_MAX, math.floor(capacity * HELD_SHARE) - (y - current) / PREVIOUS) - current
  return room > 0 and room or 0
end

local function advanced_held(now, a, b, hold, at, x, y)
  local current = y % PREVIOUS
  local first_end = hold == 0 and at or (math.floor(at / hold) + 1) * hold
  local held = current + (y - current) / PREVIOUS
  if now < first_end then return owed_after(now - at, a, b, x, held), y end
  x = owed_after(first_end - at, a, b, x, held)
  local second_end = first_end + hold
  if now < second_end then return owed_after(now - first_end, a, b, x, current), current * PREVIOUS end
  x = owed_after(hold, a, b, x, current)
  return owed_after(now - second_end, a, b, x, 0), 0
end

-- Returns x and y after `units` were given back and `settled` units taken off the lease.
local function refunded(code, tick, a, b, hold, at, x, y, units, booked_us, settled)
  local booked = position(code, tick, a, booked_us)
  if code <= LEAKY then
    if hold > 0 and settled > 0 then
      -- Takes them off the epoch in which they were booked, and gives back as many of `units` in full.
      local age, current = math.floor(at / hold) - math.floor(booked / hold), y % PREVIOUS
      local counted = age == 0 and current or age == 1 and (y - current) / PREVIOUS or 0
      if counted >= settled then
        y = y - settled * (age == 0 and 1 or PREVIOUS)
        if units > 0 then x = math.max(0, x - math.min(units, settled) * a) end
        units = math.max(0, units - settled)
      end
    end
    if units == 0 then return x, y end
    local age = math.max(0, at - booked)
    return math.max(0, x - math.max(0, units * a - age * b)), y
  end
  if at == booked then return math.max(0, x - units), y end
  if code == SLIDING and at == booked + 1 then return x, math.max(0, y - units) end
  return x, y
end

-- Advances a state to now. The state is not ahead of it.
local function advanced_to(now, code, a, b, hold, at, x, y)
  if code > LEAKY then
    if at == now then return x, y end
    return 0, (code == SLIDING and now - at == 1) and x or 0
  end
  if y ~= 0 then x, y = advanced_held(now, a, b, hold, at, x, y)
  else x = math.max(0, x - (now - at) * b) end
  return x, x == 0 and 0 or y -- nothing owed: equal to a new bucket, whatever was on lease
end

-- Applies the gives of an item, three numbers each from numbers[first] on. Also returns whether any had an effect.
local function given_back(code, tick, a, b, hold, now, x, y, numbers, first, last)
  local is_changed = false
  for i = first, last, 3 do
    local units, settled = numbers[i], numbers[i + 2]
    if (x > 0 or y > 0) and (units > 0 or (settled > 0 and hold > 0)) then
      x, y = refunded(code, tick, a, b, hold, now, x, y, units, numbers[i + 1], settled)
      if code <= LEAKY and x == 0 then y = 0 end -- equal to a new bucket
      is_changed = true
    end
  end
  return x, y, is_changed
end

-- Returns whether `low` units are available, and the units to charge if all items of the take are granted.
local function units_of_item(code, capacity, tick, a, hold, now, x, y, low, high, kind)
  local in_use = x
  if code <= LEAKY then in_use = math.ceil(x / a)
  elseif y > 0 then in_use = x + math.ceil(y * (a - math.floor(now_us / tick) + now * a) / a) end
  if in_use + low > capacity then return kind == KIND_HOLD, 0 end
  local room = held_room(capacity, hold, y)
  return true, math.min(high, capacity - in_use, kind == KIND_HOLD and room or low + room)
end

-- Returns a state after `units` were charged.
local function charged_item(code, a, hold, x, y, units, low, kind)
  x = math.min(code == SLIDING and SLIDING_MAX or STATE_MAX, x + units * (code <= LEAKY and a or 1))
  if hold > 0 then y = y + (kind == KIND_HOLD and units or math.max(0, units - low)) end
  return x, y
end
