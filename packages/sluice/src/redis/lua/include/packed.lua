--[[
  Algorithms with a state of three numbers: token bucket, leaky bucket, fixed window, sliding window. src/algorithms is
  the specification; test/differential compares both. Limits are passed as (code, tick, a, b), states as (at, x, y),
  without tables.
]]
-- Advances a state to now. Also returns whether the clock has stepped back behind it.
local function advanced(code, tick, a, b, hold, at, x, y)
  local now = position(code, tick, a, now_us)
  local steps = now - at
  if steps < 0 then return now, x, y, true end
  if code <= LEAKY and y ~= 0 then
    x, y = advanced_held(now, a, b, hold, at, x, y)
    return now, x, y, false
  end
  if steps == 0 then return at, x, y, false end
  if code <= LEAKY then return now, max(0, x - steps * b), 0, false end
  return now, 0, (code == SLIDING and steps == 1) and x or 0, false
end

local function used(code, tick, a, at, x, y)
  if code <= LEAKY then return ceil(x / a) end
  if y == 0 then return x end
  local elapsed = floor(now_us / tick) - at * a
  return x + ceil(y * (a - elapsed) / a)
end

local function charged(code, a, x, units)
  if code <= LEAKY then return min(STATE_MAX, x + units * a) end
  if code == FIXED then return min(STATE_MAX, x + units) end
  return min(SLIDING_MAX, x + units)
end

-- Converts a live state to an edited limit, as src/algorithms/edit.ts does.
local function inherited(code, tick, a, b, at, x, y, limit)
  local to_code, capacity, to_tick, to_a, to_b = limit[CODE], limit[CAPACITY], limit[TICK], limit[A], limit[B]
  local in_use = used(code, tick, a, at, x, y)
  local next_x = charged(to_code, to_a, 0, to_code <= LEAKY and min(capacity, in_use) or in_use)
  if code <= LEAKY and to_code <= LEAKY then
    local owed_ticks = ceil(ceil(x / b) * tick / to_tick)
    local capacity_subunits = capacity * to_a
    next_x = max(next_x, owed_ticks >= capacity_subunits / to_b and capacity_subunits or owed_ticks * to_b)
    return position(to_code, to_tick, to_a, now_us), next_x, y
  end
  return position(to_code, to_tick, to_a, now_us), next_x, 0
end
