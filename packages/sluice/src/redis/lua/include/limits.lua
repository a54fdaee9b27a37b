--[[
  Limits: their fields, and arithmetic that short calls and the batch share.
]]
local TOKEN, LEAKY, FIXED, SLIDING, LOG, CONCURRENCY = 1, 2, 3, 4, 5, 6
-- Kinds of charges; shadow needs no special case. Hold: all units go on lease, none is spent.
local KIND_ENFORCE, KIND_FORCE, KIND_HOLD, KIND_COUNTERFACTUAL = 0, 2, 3, 4
-- A charge has one number for kind, pair and seed: kind + KINDS * pair + KINDS_AND_PAIRS * seed.
local KINDS, PAIRS, KINDS_AND_PAIRS = 8, 65536, 524288
-- Codes in replies for units that are short.
local NOT_SHORT, NOW, NEVER, STALE = 0, 1, 2, 3
-- Equal to STATE_MAX and SLIDING_UNITS_MAX of src/algorithms/limit.ts.
local STATE_MAX, SLIDING_MAX = 4503599627370495, 67108863

-- The TTL of a value is renewed at the first change in each period of a bucket, and covers the whole period. A period
-- is this share of the time that an empty bucket takes to fill, so a value outlives its use by little more than that.
local PERIOD_SHARE, PERIOD_MIN_US = 0.125, 15000000

local call = redis.call

-- Fields of a limit, in the order of apply.lua.
local GENERATION, CODE, CAPACITY, TICK, A, B, ID, SHAPE, HOLD = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- Further fields, computed once per call: position now, capacity in subunits, position at which the current TTL period
-- began, the index of the limit, and the subunits of a unit.
local NOW_AT, FULL, PERIOD_AT, INDEX, STEP = 10, 11, 12, 13, 14

-- Length of a TTL period of a bucket, in ticks.
local function ttl_period(capacity, tick, a, b)
  return math.max(PERIOD_MIN_US / tick, capacity * a / b * PERIOD_SHARE)
end

-- Advances a state without units on lease, and takes `cost` from it: token and leaky buckets, fixed windows (b is 0).
-- Returns x and whether it exceeds the capacity. `step`: subunits of a unit.
local function charged_plain(capacity, step, b, now, at, x, cost)
  if b > 0 then
    x = x - (now - at) * b
    x = (x > 0 and x or 0) + cost * step
  else
    x = (at == now and x or 0) + cost * step
  end
  return x, x > capacity * step
end

-- Position of a state at a time: the tick of a bucket, the index of a window.
local function position(code, tick, a, us)
  if code <= LEAKY then return tick == 1 and us or math.floor(us / tick) end
  return math.floor(us / (a * tick))
end
