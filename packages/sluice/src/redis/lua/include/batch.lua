--[[
  State of a batch of requests.
]]
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local keys = KEYS

-- Filled in by apply.lua.
local limits, sets, texts, numbers
-- Limits by shape; shapes read from values are parsed into the same layout.
local numbers_by_shape = {}
local reply, reply_count = {}, 0
-- Runs a request in its general form when a fast path cannot decide it: slow_path(name, ...), see apply.lua.
local slow_path

local function push(number)
  reply_count = reply_count + 1
  reply[reply_count] = number
end

-- Computes the further fields of the limits.
local function prepare_limits()
  for i = 1, #limits do
    local limit = limits[i]
    local code, capacity, tick, a, b = limit[CODE], limit[CAPACITY], limit[TICK], limit[A], limit[B]
    local now = position(code, tick, a, now_us)
    limit[NOW_AT], limit[FULL], limit[INDEX], limit[STEP] = now, capacity * a, i, code <= LEAKY and a or 1
    limit[PERIOD_AT] = code <= LEAKY and now - now % ttl_period(capacity, tick, a, b) or now
    numbers_by_shape[limit[SHAPE]] = limit
  end
end
