--[[
  State of the batch, filled in by apply.lua, and functions on limits that every include uses.
]]
local TOKEN, LEAKY, FIXED, SLIDING, LOG, CONCURRENCY = 1, 2, 3, 4, 5, 6
-- Kinds of charges; shadow needs no special case. Hold: all units go on lease, none is spent.
local KIND_ENFORCE, KIND_FORCE, KIND_HOLD = 0, 2, 3
-- Equal to STATE_MAX and SLIDING_UNITS_MAX of src/algorithms/limit.ts.
local STATE_MAX, SLIDING_MAX = 4503599627370495, 67108863

-- The TTL of a value is renewed at the first change in each period of a bucket, and covers the whole period. A period
-- is this share of the time that an empty bucket takes to fill, so a value outlives its use by little more than that.
local PERIOD_SHARE, PERIOD_MIN_US = 0.125, 15000000

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local call, keys = redis.call, KEYS

local limits, sets, texts, numbers, raw, now_us
-- Limits by shape; shapes read from values are parsed into the same layout.
local numbers_by_shape = {}
local reply, reply_count = {}, 0
-- Runs a request in its general form when a fast path cannot decide it: slow_path(name, ...), see apply.lua.
local slow_path

local function push(number)
  reply_count = reply_count + 1
  reply[reply_count] = number
end

-- Fields of a limit, in the order of apply.lua.
local GENERATION, CODE, CAPACITY, TICK, A, B, ID, SHAPE, HOLD = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- Further fields, computed once per batch: position now, capacity in subunits, position at which the current TTL period
-- began, and the index of the limit.
local NOW_AT, FULL, PERIOD_AT, INDEX = 10, 11, 12, 13

-- Position of a state at a time: the tick of a bucket, the index of a window.
local function position(code, tick, a, us)
  if code <= LEAKY then return tick == 1 and us or floor(us / tick) end
  return floor(us / (a * tick))
end

-- Length of a TTL period of a bucket, in ticks.
local function ttl_period(limit)
  return max(PERIOD_MIN_US / limit[TICK], limit[CAPACITY] * limit[A] / limit[B] * PERIOD_SHARE)
end

local function prepare_limits()
  for i = 1, #limits do
    local limit = limits[i]
    limit[NOW_AT] = position(limit[CODE], limit[TICK], limit[A], now_us)
    limit[FULL] = limit[CAPACITY] * limit[A]
    if limit[CODE] <= LEAKY then limit[PERIOD_AT] = limit[NOW_AT] - limit[NOW_AT] % ttl_period(limit) end
    limit[INDEX] = i
    numbers_by_shape[limit[SHAPE]] = limit
  end
  for i = 1, #sets do
    local set = sets[i]
    for j = 1, #set do set[j] = limits[set[j]] end
  end
end
