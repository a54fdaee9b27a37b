--[[
  The batch, as apply.lua fills it in, and what every part of the script needs of limits.
]]
local TOKEN, LEAKY, FIXED, SLIDING, LOG, CONCURRENCY = 1, 2, 3, 4, 5, 6
-- Kinds of charges that are told apart here: `hold` is ALL_HELD, for nobody yet.
local ENFORCE, FORCE, ALL_HELD = 0, 2, 3
-- STATE_MAX and SLIDING_UNITS_MAX of src/algorithms/limit.ts.
local STATE_MAX, SLIDING_MAX = 4503599627370495, 67108863

-- The TTL of a value is set anew at the first change in each period of a bucket, and covers all that can happen in it.
-- A period is this share of the time that an empty bucket takes to fill, so no value outlives its use by much more.
local PERIOD_SHARE, PERIOD_MIN_US = 0.125, 15000000

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local call, keys = redis.call, KEYS

local limits, sets, texts, numbers, raw, now_us
-- The numbers of shapes, laid out as those of limits, which have one each.
local numbers_by_shape = {}
local reply, said = {}, 0
-- Does at length, by name, what a short way cannot: see apply.lua.
local at_length

local function say(number)
  said = said + 1
  reply[said] = number
end

-- What a limit is, as apply.lua says.
local GENERATION, CODE, CAPACITY, TICK, A, B, ID, SHAPE, HOLD = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- Behind it, what is worked out once per batch: where a state stands now, how many parts a bucket holds, where a state
-- stood when the present period of TTLs began, and which limit it is.
local NOW_AT, FULL, PERIOD_AT, INDEX = 10, 11, 12, 13

-- Where a state stands at a time: tick of a bucket, index of a window.
local function position(code, tick, a, us)
  if code <= LEAKY then return tick == 1 and us or floor(us / tick) end
  return floor(us / (a * tick))
end

-- In ticks, of a bucket.
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
