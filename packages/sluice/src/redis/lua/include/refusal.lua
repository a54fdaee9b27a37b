-- Returns the reply to a refused plain take, as to a take of a batch. `reply` has x of each limit after the charge.
local function refusal(reply, cost, count)
  local refused = { reply[1], -1, 0, 0 }
  for i = 1, count do
    local capacity, _, step = string.match(ARGV[2 * i + 1], LIMIT_PATTERN)
    local x = reply[i + 1]
    capacity = capacity + 0
    local short = cost > capacity and NEVER or x > capacity * step and NOW or NOT_SHORT
    refused[4 * i + 1], refused[4 * i + 2], refused[4 * i + 3], refused[4 * i + 4] = short, 0, x - cost * step, 0
  end
  return refused
end
