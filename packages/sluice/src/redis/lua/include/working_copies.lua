--[[
  Working copies of the buckets of one request, by item. A bucket is advanced to now in the copy, and written back into
  its value only if something is charged, or an edit or a backward clock step has to be kept. A bucket that is read and
  not charged stays as it was: otherwise, after a later backward step of the clock, its state would differ.
]]
local UNREADABLE, CROWDED = -1, -2

-- By item: index of the bucket (0: none yet), its state or its list, and whether newer rules wrote it.
local indexes, ats, xs, ys, lists, stales = {}, {}, {}, {}, {}, {}

local function name_of(limit, detail)
  return detail == 0 and limit[ID] or limit[ID] .. '|' .. texts[detail]
end

-- Adds a bucket to a value and returns its index.
local function add_bucket(key, name, shape)
  local layout = layout_of(layout_by_key[key][TEXT] .. bucket_text(name, shape))
  extend(key, layout)
  return layout[COUNT]
end

-- Replaces the shape of a bucket after its limit was edited.
local function reshape(key, index, shape)
  local layout, texts_of = layout_by_key[key], {}
  for i = 1, layout[COUNT] do
    texts_of[i] = bucket_text(layout[NAMES][i], i == index and shape or layout[SHAPES][i])
  end
  layout_by_key[key], layout_changed[key] = layout_of(table.concat(texts_of)), true
end

-- Whether a change is the first in its TTL period, or outlasts the TTL.
local function outlives_ttl(limit, old_at, at, x)
  if limit[CODE] > LEAKY then return at ~= old_at end
  return at < old_at or x > limit[FULL] or old_at < limit[PERIOD_AT]
end

local function keep_packed(item, key, limit, detail)
  local index = indexes[item]
  if index == 0 then
    index = add_bucket(key, name_of(limit, detail), limit[SHAPE])
    indexes[item], ttl_due[key] = index, true
  elseif layout_by_key[key][SHAPES][index] ~= limit[SHAPE] then
    reshape(key, index, limit[SHAPE])
    ttl_due[key] = true
  end
  local r = bases[key] + 3 * index - 2
  if not ttl_due[key] and outlives_ttl(limit, states[r], ats[item], xs[item]) then ttl_due[key] = true end
  states[r], states[r + 1], states[r + 2] = ats[item], xs[item], ys[item]
  mark_dirty(key, index)
end

local function keep_list(item, key, limit)
  local list = lists[item]
  list[1], list[2] = limit[GENERATION], limit[A]
  kept_lists[key], list_exists[key] = retention_us(limit[ID]) > SLACK_US, true
  set_list(key, limit[CODE], list)
end

local function keep(item, key, limit, detail)
  if limit[CODE] >= LOG then keep_list(item, key, limit) else keep_packed(item, key, limit, detail) end
end

-- Whether a state means the same under both limits. Generation and capacity do not matter.
local function same_shape(one, other)
  return one[CODE] == other[CODE] and one[TICK] == other[TICK] and one[A] == other[A] and one[B] == other[B]
    and one[HOLD] == other[HOLD]
end

local function load_packed(item, key, limit, name, keeps)
  local layout = layout_at(key)
  if not layout then return UNREADABLE end
  local index = layout[INDEX_BY_NAME][name] or 0
  indexes[item], stales[item] = index, false
  if index == 0 then
    if layout[COUNT] >= BUCKETS_MAX then return CROWDED end
    ats[item], xs[item], ys[item] = position(limit[CODE], limit[TICK], limit[A], now_us), 0, 0
    return 0
  end
  local shape, r = layout[SHAPES][index], bases[key] + 3 * index - 2
  local written = shape == limit[SHAPE] and limit or numbers_of(shape)
  local code, tick, a, b = written[CODE], written[TICK], written[A], written[B]
  local at, x, y, moved = advanced(code, tick, a, b, written[HOLD], states[r], states[r + 1], states[r + 2])
  if code <= LEAKY and x == 0 then y = 0 end -- nothing owed: equal to a new bucket, whatever was on lease
  if written ~= limit then
    if x == 0 and y == 0 then
      at, moved = position(limit[CODE], limit[TICK], limit[A], now_us), false
    elseif written[GENERATION] > limit[GENERATION] then
      stales[item], moved = true, false
    elseif not same_shape(written, limit) then
      at, x, y = inherited(code, tick, a, b, at, x, y, limit)
      moved = true
    end
  end
  ats[item], xs[item], ys[item] = at, x, y
  if moved and keeps then keep_packed(item, key, limit) end
  return 0
end

local function load_listed(item, key, limit, keeps)
  local generation, code, window_us = limit[GENERATION], limit[CODE], limit[A]
  local stored = listed_value(key, code, window_us, generation)
  if not stored then return UNREADABLE end
  local list = { unpack(stored) }
  local moved = advance_list(code, list, window_us)
  if list[2] ~= window_us then
    -- Entries outside the old or the new window are dropped.
    if code == LOG then advance_log(list, list[2]) end
    moved = true
  end
  lists[item] = list
  stales[item] = list[1] > generation and is_live_list(code, list)
  if moved and keeps and not stales[item] then keep_list(item, key, limit) end
  return 0
end

-- Loads the bucket of an item, advanced to now. Returns 0, or a negative status.
local function load_bucket(item, key, limit, detail, keeps)
  if limit[CODE] >= LOG then return load_listed(item, key, limit, keeps) end
  return load_packed(item, key, limit, name_of(limit, detail), keeps)
end

-- Loads a counterfactual bucket. If it does not exist, it starts as a copy of the live bucket, and is stored even if
-- nothing is charged: a later copy would include requests that this version refused.
local function load_counterfactual(item, key, limit, detail, seed, keeps)
  if seed == 0 then return load_bucket(item, key, limit, detail, keeps) end
  local status
  if limit[CODE] >= LOG then
    -- Tests existence before loading: a load also stores an empty list if an earlier request changed its window.
    local exists = list_exists[key]
    if exists == nil then exists = raw[key] end
    if exists then return load_listed(item, key, limit, keeps) end
    status = load_listed(item, seed, limit, false)
  else
    status = load_bucket(item, key, limit, detail, keeps)
    local index = indexes[item]
    if status < 0 or index ~= 0 and states[bases[key] + 3 * index - 2] ~= 0 then return status end -- position 0: reset
    status = load_packed(item, seed, limit, string.sub(name_of(limit, detail), 12), false)
    indexes[item] = index
  end
  if status == 0 and keeps and not stales[item] then keep(item, key, limit, detail) end
  return status
end

local function is_live(item, limit)
  if limit[CODE] >= LOG then return is_live_list(limit[CODE], lists[item]) end
  return xs[item] > 0 or ys[item] > 0
end

-- `held`: how many of the units go on lease instead of being spent.
local function spend(item, key, limit, detail, units, op_id, held)
  if limit[CODE] >= LOG then
    charge_list(limit[CODE], lists[item], limit[A], units, op_id)
    keep_list(item, key, limit)
  else
    xs[item] = charged(limit[CODE], limit[A], xs[item], units)
    ys[item] = ys[item] + held
    keep_packed(item, key, limit, detail)
  end
end
