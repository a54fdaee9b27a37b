-- TTL of a value that a call with one take writes as a whole.
local ttl = make_ttl(now_us, ttl_period)
local latest_end_us, retention_us, ttl_seconds = ttl[1], ttl[2], ttl[3]

-- Returns the TTL of a value with exactly the buckets of the limits.
local function whole_value_ttl(states_text, count)
  local latest = 0
  for i = 1, count do
    local name = struct.unpack('<Hc0', ARGV[2 * i])
    local at, x = struct.unpack(STATE, states_text, STATE_BYTES * (i - 1) + 1)
    local capacity, tick, step, b = string.match(ARGV[2 * i + 1], LIMIT_PATTERN)
    capacity, tick, step, b = capacity + 0, tick + 0, step + 0, b + 0
    local latest_end = latest_end_us(b > 0 and TOKEN or FIXED, capacity, tick, step, b, at, x)
    latest = math.max(latest, latest_end + retention_us(name) - SLACK_US)
  end
  return ttl_seconds(latest)
end
