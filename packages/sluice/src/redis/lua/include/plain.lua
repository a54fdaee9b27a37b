--[[
  The plain take, which most requests are: of packed buckets in one value, all enforced, of one cost.
]]
-- Where a layout has the buckets of a set of limits: their seats, and behind them the layout with seats for all
-- (another one when it has not), and the first and the last of the seats. False when another limit wrote one of them,
-- or there would be too many.
local function find_set(layout, set)
  local found, text, count, low, high = {}, layout[TEXT], layout[COUNT], BUCKETS_MAX, 0
  for i = 1, #set do
    local limit = set[i]
    local seat = layout[SEATS][limit[ID]]
    if not seat then
      count = count + 1
      seat, text = count, text .. bucket_text(limit[ID], limit[SHAPE])
    elseif layout[SHAPES][seat] ~= limit[SHAPE] then
      return false
    end
    found[i], low, high = seat, min(low, seat), max(high, seat)
  end
  if count > BUCKETS_MAX then return false end
  found[#set + 1], found[#set + 2], found[#set + 3] = layout_of(text), low, high
  return found
end

-- The seats of a set of limits in a value (see find_set), false when they have to be looked for at length; and the
-- layout that the value has now.
local function seats_at(key, set_index)
  local layout = layout_by_key[key]
  if layout == nil then layout = layout_at(key) end
  local found = layout and layout[FINDS][set_index]
  if found == nil then
    found = find_set(layout, sets[set_index])
    layout[FINDS][set_index] = found
  end
  return found, layout
end

-- By part, x with the cost charged.
local new_xs = {}

-- Granted by new buckets or by buckets that the same limits wrote; anything else goes `at_length`, and so do sliding
-- windows, whose answer needs y. The maths of include/packed.lua without its calls, which would be most of the time;
-- the differential test runs both ways.
local function take_plain(key, set_index, cost)
  local set, found, layout = sets[set_index], seats_at(key, set_index)
  if not found then return at_length('plain', key, set, cost) end

  local count, base, old_count, renews = #set, bases[key], layout[COUNT], false
  for i = 1, count do
    local limit, seat = set[i], found[i]
    local code, now, at, x = limit[CODE], limit[NOW_AT], 0, 0
    if seat <= old_count then
      local r = base + 3 * seat
      at, x = states[r - 2], states[r - 1]
      -- Some of it is on lease: that takes more to tell.
      if code <= LEAKY and states[r] ~= 0 then return at_length('plain', key, set, cost) end
    end
    if at > now then return at_length('plain', key, set, cost) end
    if code <= LEAKY then
      x = x - (now - at) * limit[B]
      x = (x > 0 and x or 0) + cost * limit[A]
      if x > limit[FULL] then return at_length('plain', key, set, cost) end
      if at < limit[PERIOD_AT] then renews = true end
    else
      if at ~= now then x, renews = 0, true end
      x = x + cost
      if code ~= FIXED or x > limit[CAPACITY] then return at_length('plain', key, set, cost) end
    end
    new_xs[i] = x
  end

  if found[count + 1] ~= layout then
    extend(key, found[count + 1])
    base = bases[key]
  end
  if renews then aged[key] = true end
  for i = 1, count do
    local r, x = base + 3 * found[i], new_xs[i]
    states[r - 2], states[r - 1] = set[i][NOW_AT], x
    reply[said + i] = x
  end
  said = said + count
  mark_dirty(key, found[count + 2])
  if count > 1 then mark_dirty(key, found[count + 3]) end
end
