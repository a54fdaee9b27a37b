--[[
  The bucket at hand for each part of the request at hand: brought to now on the side, and written back into its value
  only when something is charged (or an edit or a clock that stepped back has to be kept). A bucket that is asked and
  not charged is left as it was, or a clock that steps back would find it in another state than if nobody had asked.
]]
local UNREADABLE, CROWDED = -1, -2

-- By part: the seat of the bucket in its value (0: none yet), its state, or its list, and whether newer rules wrote it.
local seats, ats, xs, ys, lists, stales = {}, {}, {}, {}, {}, {}

local function name_of(limit, detail)
  return detail == 0 and limit[ID] or limit[ID] .. '|' .. texts[detail]
end

-- Adds a bucket to a value and returns its seat.
local function add_bucket(key, name, shape)
  local layout = layout_of(layout_by_key[key][TEXT] .. bucket_text(name, shape))
  extend(key, layout)
  return layout[COUNT]
end

-- The limit that wrote a bucket has become another one.
local function reshape(key, seat, shape)
  local layout, texts_of = layout_by_key[key], {}
  for i = 1, layout[COUNT] do
    texts_of[i] = bucket_text(layout[NAMES][i], i == seat and shape or layout[SHAPES][i])
  end
  layout_by_key[key], relaid[key] = layout_of(table.concat(texts_of)), true
end

-- Whether a change from one state to another is the first in its period, or reaches beyond what the TTL was set for.
local function outlives_ttl(limit, old_at, at, x)
  if limit[CODE] > LEAKY then return at ~= old_at end
  return at < old_at or x > limit[FULL] or old_at < limit[PERIOD_AT]
end

local function keep_packed(part, key, limit, detail)
  local seat = seats[part]
  if seat == 0 then
    seat = add_bucket(key, name_of(limit, detail), limit[SHAPE])
    seats[part], aged[key] = seat, true
  elseif layout_by_key[key][SHAPES][seat] ~= limit[SHAPE] then
    reshape(key, seat, limit[SHAPE])
    aged[key] = true
  end
  local r = bases[key] + 3 * seat - 2
  if not aged[key] and outlives_ttl(limit, states[r], ats[part], xs[part]) then aged[key] = true end
  states[r], states[r + 1], states[r + 2] = ats[part], xs[part], ys[part]
  mark_dirty(key, seat)
end

local function keep_list(part, key, limit)
  local list = lists[part]
  list[1], list[2] = limit[GENERATION], limit[A]
  set_list(key, limit[CODE], list)
end

local function keep(part, key, limit, detail)
  if limit[CODE] >= LOG then keep_list(part, key, limit) else keep_packed(part, key, limit, detail) end
end

-- Whether a state written under one limit means the same under the other: generation and capacity are no part of it.
local function same_shape(one, other)
  return one[CODE] == other[CODE] and one[TICK] == other[TICK] and one[A] == other[A] and one[B] == other[B]
    and one[HOLD] == other[HOLD]
end

local function settle_packed(part, key, limit, detail, keeps)
  local layout = layout_at(key)
  if not layout then return UNREADABLE end
  local seat = layout[SEATS][name_of(limit, detail)] or 0
  seats[part], stales[part] = seat, false
  if seat == 0 then
    if layout[COUNT] >= BUCKETS_MAX then return CROWDED end
    ats[part], xs[part], ys[part] = position(limit[CODE], limit[TICK], limit[A], now_us), 0, 0
    return 0
  end
  local shape, r = layout[SHAPES][seat], bases[key] + 3 * seat - 2
  local written = shape == limit[SHAPE] and limit or numbers_of(shape)
  local code, tick, a, b = written[CODE], written[TICK], written[A], written[B]
  local at, x, y, moved = advanced(code, tick, a, b, written[HOLD], states[r], states[r + 1], states[r + 2])
  if code <= LEAKY and x == 0 then y = 0 end -- nothing owed: as good as new, whatever was on lease
  if written ~= limit then
    if x == 0 and y == 0 then
      at, moved = position(limit[CODE], limit[TICK], limit[A], now_us), false
    elseif written[GENERATION] > limit[GENERATION] then
      stales[part], moved = true, false
    elseif not same_shape(written, limit) then
      at, x, y = inherited(code, tick, a, b, at, x, y, limit)
      moved = true
    end
  end
  ats[part], xs[part], ys[part] = at, x, y
  if moved and keeps then keep_packed(part, key, limit, detail) end
  return 0
end

local function settle_listed(part, key, limit, keeps)
  local generation, code, window_us = limit[GENERATION], limit[CODE], limit[A]
  local stored = listed_value(key, code, window_us, generation)
  if not stored then return UNREADABLE end
  local list = { unpack(stored) }
  local moved = advance_list(code, list, window_us)
  if list[2] ~= window_us then
    -- What has left the old window or the new one is gone.
    if code == LOG then advance_log(list, list[2]) end
    moved = true
  end
  lists[part] = list
  stales[part] = list[1] > generation and is_live_list(code, list)
  if moved and keeps and not stales[part] then keep_list(part, key, limit) end
  return 0
end

-- Brings the bucket of a part to now; a negative status when it cannot be had.
local function settle(part, key, limit, detail, keeps)
  if limit[CODE] >= LOG then return settle_listed(part, key, limit, keeps) end
  return settle_packed(part, key, limit, detail, keeps)
end

local function is_live(part, limit)
  if limit[CODE] >= LOG then return is_live_list(limit[CODE], lists[part]) end
  return xs[part] > 0 or ys[part] > 0
end

-- `held` of the units are not spent yet but on lease.
local function spend(part, key, limit, detail, units, op_id, held)
  if limit[CODE] >= LOG then
    charge_list(limit[CODE], lists[part], limit[A], units, op_id)
    keep_list(part, key, limit)
  else
    xs[part] = charged(limit[CODE], limit[A], xs[part], units)
    ys[part] = ys[part] + held
    keep_packed(part, key, limit, detail)
  end
end
