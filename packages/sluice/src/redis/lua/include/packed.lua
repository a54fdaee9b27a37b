--[[
  Algorithms of three numbers: token bucket, leaky bucket, fixed window, sliding window. The TypeScript in
  src/algorithms is the specification; test/differential proves that this is equal to it.

  An entry is {generation, code, capacity, tick_us, a, b, at, x, y}: the limit that wrote it, then the state.
  The first six are laid out as in a limit, so a function that takes a limit takes an entry as well.
]]
local GENERATION, CODE, CAPACITY, TICK, A, B, AT, X, Y = 1, 2, 3, 4, 5, 6, 7, 8, 9
local TOKEN, LEAKY, FIXED, SLIDING, LOG, CONCURRENCY = 1, 2, 3, 4, 5, 6
local OWED_MAX = 4503599627370496
local SLIDING_MAX = 67108863

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local function is_bucket(limit) return limit[CODE] <= LEAKY end

-- Where the state stands at a time: tick of a bucket, index of a window.
local function position(limit, us)
  if limit[CODE] <= LEAKY then return floor(us / limit[TICK]) end
  return floor(us / (limit[A] * limit[TICK]))
end

local function fresh(limit, now_us)
  return { limit[1], limit[2], limit[3], limit[4], limit[5], limit[6], position(limit, now_us), 0, 0 }
end

-- Requests work on copies: an entry that is brought to now but not charged is not written, or a clock that steps back
-- would find it in another state than if nobody had asked.
local function copied(e) return { e[1], e[2], e[3], e[4], e[5], e[6], e[7], e[8], e[9] } end

-- Brings an entry to now; true when the clock had stepped back behind it.
local function advance(entry, now_us)
  local at = position(entry, now_us)
  local steps = at - entry[AT]
  entry[AT] = at
  if steps < 0 then return true end
  if steps == 0 then return false end
  if entry[CODE] <= LEAKY then
    entry[X] = max(0, entry[X] - steps * entry[B])
  else
    entry[Y] = entry[CODE] == SLIDING and steps == 1 and entry[X] or 0
    entry[X] = 0
  end
  return false
end

local function is_live(entry) return entry[X] > 0 or entry[Y] > 0 end

local function used(entry, now_us)
  if entry[CODE] <= LEAKY then return ceil(entry[X] / entry[A]) end
  if entry[Y] == 0 then return entry[X] end
  local elapsed = floor(now_us / entry[TICK]) - entry[AT] * entry[A]
  return entry[X] + ceil(entry[Y] * (entry[A] - elapsed) / entry[A])
end

local function charge(entry, units)
  if entry[CODE] <= LEAKY then
    entry[X] = min(OWED_MAX, entry[X] + units * entry[A])
  elseif entry[CODE] == FIXED then
    entry[X] = entry[X] + units
  else
    entry[X] = min(SLIDING_MAX, entry[X] + units)
  end
end

local function refund(entry, now_us, units, booked_us)
  if is_bucket(entry) then
    local age = max(0, position(entry, now_us) - position(entry, booked_us))
    entry[X] = max(0, entry[X] - max(0, units * entry[A] - age * entry[B]))
    return
  end
  local age = entry[AT] - position(entry, booked_us)
  if age == 0 then entry[X] = max(0, entry[X] - units) end
  if age == 1 and entry[CODE] == SLIDING then entry[Y] = max(0, entry[Y] - units) end
end

local function same_shape(a, b)
  return a[5] == b[5] and a[3] == b[3] and a[6] == b[6] and a[4] == b[4] and a[2] == b[2]
end

-- What an edited limit makes of a live entry that another one wrote: src/algorithms/edit.ts.
local function inherit(old, limit, now_us)
  local next = fresh(limit, now_us)
  charge(next, min(limit[CAPACITY], used(old, now_us)))
  if is_bucket(old) and is_bucket(limit) then
    local owed_ticks = ceil(ceil(old[X] / old[B]) * old[TICK] / limit[TICK])
    local capacity_parts = limit[CAPACITY] * limit[A]
    local owed = owed_ticks >= capacity_parts / limit[B] and capacity_parts or owed_ticks * limit[B]
    next[X] = max(next[X], owed)
  end
  return next
end

-- When an entry ends to matter, as it was stored.
local function ends_us(entry)
  if entry[CODE] <= LEAKY then return (entry[AT] + ceil(entry[X] / entry[B])) * entry[TICK] end
  return (entry[AT] + (entry[CODE] == SLIDING and 2 or 1)) * entry[A] * entry[TICK]
end
