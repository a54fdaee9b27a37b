--[[
  Fast paths for lease takes and gives, within a batch.

  A lease take charges packed buckets in one value, each with kind enforce or hold, all with one cost, and takes
  more units than are needed now. It carries gives of units charged earlier.
]]
-- By item: the new state, the units to charge, and whether gives changed the state.
local next_xs, next_ys, next_units, has_gives = {}, {}, {}, {}

local function write_item(key, index, limit, x, y)
  local r = bases[key] + 3 * index
  if states[r - 2] < limit[PERIOD_AT] then ttl_due[key] = true end
  states[r - 2], states[r - 1], states[r] = limit[NOW_AT], x, y
  mark_dirty(key, index)
end

-- `first`: index of the request; returns the index of the next one. Buckets written under another limit, states ahead
-- of a clock that stepped back, and costs above the limit take the slow path.
local function take_leased(first)
  local key, set_index, low = numbers[first + 1], numbers[first + 2], numbers[first + 3]
  local found, layout = indexes_at(key, set_index)
  if not found then return slow_path('leased', first) end
  local set, base, all, i = sets[set_index], bases[key], true, first + 4
  for item = 1, #set do
    local limit, at, x, y, granted = set[item], 0, 0, 0
    local code, capacity, tick, a, b = limit[CODE], limit[CAPACITY], limit[TICK], limit[A], limit[B]
    local hold, now, last = limit[HOLD], limit[NOW_AT], i + 2 + 3 * numbers[i + 2]
    if found[item] <= layout[COUNT] then
      local r = base + 3 * found[item]
      at, x, y = states[r - 2], states[r - 1], states[r]
    end
    if at > now or low > capacity then return slow_path('leased', first) end
    x, y = advanced_to(now, code, a, b, hold, at, x, y)
    x, y, has_gives[item] = given_back(code, tick, a, b, hold, now, x, y, numbers, i + 3, last)
    granted, next_units[item] = units_of_item(code, capacity, tick, a, hold, now, x, y, low, numbers[i], numbers[i + 1])
    next_xs[item], next_ys[item], all, i = x, y, all and granted, last + 1
  end
  if all and found[#set + 1] ~= layout then extend(key, found[#set + 1]) end
  push(all and 1 or 0)
  local kind_at = first + 5
  for item = 1, #set do
    local limit, units, x, y = set[item], all and next_units[item] or 0, next_xs[item], next_ys[item]
    if units > 0 then x, y = charged_item(limit[CODE], limit[A], limit[HOLD], x, y, units, low, numbers[kind_at]) end
    if units > 0 or has_gives[item] then write_item(key, found[item], limit, x, y) end
    reply[reply_count + 1], reply[reply_count + 2], reply[reply_count + 3] = units, x, y
    reply_count = reply_count + 3
    kind_at = kind_at + 3 + 3 * numbers[kind_at + 1]
  end
  return i
end

-- Gives units of one bucket back, or takes them off the lease. Returns the index of the next request.
local function give_plain(first)
  local key, set_index, next_at = numbers[first + 1], numbers[first + 2], first + 6
  local found, layout = indexes_at(key, set_index)
  if not found then return slow_path('given', first, next_at) end
  local limit, index = sets[set_index][1], found[1]
  if index > layout[COUNT] then -- no such bucket: nothing to give back to
    push(1)
    return next_at
  end
  local r = bases[key] + 3 * index
  local at, units, settled = states[r - 2], numbers[first + 3], numbers[first + 5]
  if at > limit[NOW_AT] then return slow_path('given', first, next_at) end
  local code, tick, a, b, hold, now = limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], limit[NOW_AT]
  local x, y = advanced_to(now, code, a, b, hold, at, states[r - 1], states[r])
  if (x > 0 or y > 0) and (units > 0 or (settled > 0 and hold > 0)) then
    x, y = refunded(code, tick, a, b, hold, now, x, y, units, numbers[first + 4], settled)
    write_item(key, index, limit, x, y)
  end
  push(1)
  return next_at
end
