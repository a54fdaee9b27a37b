--[[
  Fast path of plain takes, the most frequent requests: packed buckets in one value, all enforced, one cost.
]]
-- Finds the buckets of a set of limits in a layout. Returns their indexes, then the layout (extended by the missing
-- buckets), then the lowest and the highest index. False if a bucket was written under another limit, or if there would
-- be too many buckets.
local function find_indexes(layout, set)
  local found, text, count, low, high = {}, layout[TEXT], layout[COUNT], BUCKETS_MAX, 0
  for i = 1, #set do
    local limit = set[i]
    local index = layout[INDEX_BY_NAME][limit[ID]]
    if not index then
      count = count + 1
      index, text = count, text .. bucket_text(limit[ID], limit[SHAPE])
    elseif layout[SHAPES][index] ~= limit[SHAPE] then
      return false
    end
    found[i], low, high = index, min(low, index), max(high, index)
  end
  if count > BUCKETS_MAX then return false end
  found[#set + 1], found[#set + 2], found[#set + 3] = layout_of(text), low, high
  return found
end

-- Returns the result of find_indexes for a value (false: slow path) and the current layout.
local function indexes_at(key, set_index)
  local layout = layout_by_key[key]
  if layout == nil then layout = layout_at(key) end
  local found = layout and layout[FOUND_INDEXES][set_index]
  if found == nil then
    found = find_indexes(layout, sets[set_index])
    layout[FOUND_INDEXES][set_index] = found
  end
  return found, layout
end

-- By item: x after the charge.
local new_xs = {}

-- Grants from new buckets and from buckets written under the same limits; everything else takes the slow path, and so
-- do sliding windows, whose reply needs y.
local function take_plain(key, set_index, cost)
  local set, found, layout = sets[set_index], indexes_at(key, set_index)
  if not found then return slow_path('plain', key, set, cost) end

  local count, base, old_count, renews = #set, bases[key], layout[COUNT], false
  for i = 1, count do
    local limit, index = set[i], found[i]
    local code, now, at, x = limit[CODE], limit[NOW_AT], 0, 0
    if index <= old_count then
      local r = base + 3 * index
      at, x = states[r - 2], states[r - 1]
      -- y is not 0: some units are on lease.
      if code <= LEAKY and states[r] ~= 0 then return slow_path('plain', key, set, cost) end
    end
    if at > now then return slow_path('plain', key, set, cost) end
    local after, is_short = charged_plain(limit[CAPACITY], limit[STEP], limit[B], now, at, x, cost)
    if is_short or code > FIXED then return slow_path('plain', key, set, cost) end
    if at < limit[PERIOD_AT] then renews = true end
    new_xs[i] = after
  end

  if found[count + 1] ~= layout then
    extend(key, found[count + 1])
    base = bases[key]
  end
  if renews then ttl_due[key] = true end
  for i = 1, count do
    local r, x = base + 3 * found[i], new_xs[i]
    states[r - 2], states[r - 1] = set[i][NOW_AT], x
    reply[reply_count + i] = x
  end
  reply_count = reply_count + count
  mark_dirty(key, found[count + 2])
  if count > 1 then mark_dirty(key, found[count + 3]) end
end
