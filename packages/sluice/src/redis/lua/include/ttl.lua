--[[
  How long values live.
]]
-- The TTL only reclaims memory: the state itself says when it is full again. The slack keeps a value alive after that,
-- because a clock that steps back would otherwise find no value, and treat a spent bucket as full. It is longer than
-- any lease (lease-terms.ts).
local SLACK_US = 60000000
-- A counterfactual bucket is kept longer: a new one would start from the live bucket again. Equals
-- COUNTERFACTUAL_RETENTION_US of src/store/counterfactual.ts.
local COUNTERFACTUAL_US = 600000000

-- Returns how long a bucket is kept after it is full.
local function retention_us(name)
  local prefix = string.sub(name, 1, 4)
  return (prefix == 'old^' or prefix == 'new^') and COUNTERFACTUAL_US or SLACK_US
end

-- Returns when a stored state is full again, and so equivalent to no state.
local function ends_us(code, tick, a, b, at, x)
  if code <= LEAKY then return (at + math.ceil(x / b)) * tick end
  return (at + (code == SLIDING and 2 or 1)) * a * tick
end

-- Returns the latest time at which a state can end: if its bucket is emptied at the end of its TTL period.
local function latest_end_us(code, capacity, tick, a, b, at, x)
  if code > LEAKY then return ends_us(code, tick, a, b, at, x) end
  return ends_us(code, tick, a, b, at + ttl_period(capacity, tick, a, b), math.max(x, capacity * a))
end

-- Returns the TTL of a value that is not needed after `ends`, in seconds.
local function ttl_seconds(ends) return math.max(1, math.ceil((ends - now_us + SLACK_US) / 1000000)) end
