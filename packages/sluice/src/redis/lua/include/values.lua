--[[
  Packed values: read all at once, decided on as tables, written once each. A value that cannot be read spoils the
  requests that touch it and no others; it is never overwritten. (A key that holds no string is taken for none.)

  A packed value is a layout behind its length, which says what buckets it has, and their states in that order. Most
  values of a fleet have one of a few layouts, and each layout is read once per batch: of most values, only the numbers
  are looked at.
]]
-- The same number stands in wire.ts.
local BUCKETS_MAX = 1024
local LAYOUT = '<I3c0'
-- A bucket within a layout: its name, and the shape of the limit that wrote it, each behind its length.
local BUCKET = '<Hc0Bc0'
-- at and x of 7 bytes and y of 4: states can be written alone, in their place.
local STATE, STATE_BYTES = '<I7I7I4', 18
local THREE_STATES = '<I7I7I4I7I7I4I7I7I4'
-- generation, code, capacity, tick, a, b and, where units may be on lease, hold, in base 36.
local SHAPE_PATTERN = '^(%w+):(%w+):(%w+):(%w+):(%w+):(%w+):?(%w*)$'

local pack, unpack_struct = struct.pack, struct.unpack

-- A layout is {text, count, names, shapes, seat by name, what a set of limits finds in it: see include/plain.lua}.
local TEXT, COUNT, NAMES, SHAPES, SEATS, FINDS = 1, 2, 3, 4, 5, 6
local layouts = {}
-- All states one behind the other: at, x and y of the bucket in seat 1 of a value, of seat 2, ... `state_count` is how
-- many numbers there are.
local states, state_count = {}, 0
-- By key: its layout (false: the value cannot be read) and how many numbers precede its states.
local layout_by_key, bases = {}, {}
-- Keys that have changed; by key the first seat that did, the last one if that is another, whether the layout did, and
-- whether the TTL must be set. Tables grow with each new entry, and growing costs: what is rare has a table of its own.
local dirty_keys, dirty_count, lows, highs, relaid, aged = {}, 0, {}, {}, {}, {}
local digits_of, state_formats = {}, {}
local guarded = false

-- `seat`: the bucket whose state changed.
local function mark_dirty(key, seat)
  local low = lows[key]
  if not low then
    dirty_count = dirty_count + 1
    dirty_keys[dirty_count], lows[key] = key, seat
  elseif seat < low then
    lows[key], highs[key] = seat, highs[key] or low
  elseif seat > (highs[key] or low) then
    highs[key] = seat
  end
end

-- The numbers of a shape, laid out as in a limit. An error when it is none.
local function numbers_of(shape)
  local known = numbers_by_shape[shape]
  if known then return known end
  local parts = { string.match(shape, SHAPE_PATTERN) }
  for i = 1, 6 do parts[i] = tonumber(parts[i], 36) end
  parts[HOLD] = tonumber(parts[7], 36) or 0
  numbers_by_shape[shape] = parts
  return parts
end

-- The layout of a text. An error when it is none.
local function layout_of(text)
  local known = layouts[text]
  if known then return known end
  local names, shapes, seats, count, rest = {}, {}, {}, 0, 1
  while rest <= #text do
    count = count + 1
    names[count], shapes[count], rest = unpack_struct(BUCKET, text, rest)
    numbers_of(shapes[count])
    seats[names[count]] = count
  end
  local layout = { text, count, names, shapes, seats, {} }
  layouts[text] = layout
  return layout
end

local function bucket_text(name, shape) return pack(BUCKET, #name, name, #shape, shape) end

local function read_packed(key, text)
  local layout_text, rest = unpack_struct(LAYOUT, text)
  local layout = layouts[layout_text] or layout_of(layout_text)
  if #text ~= rest - 1 + STATE_BYTES * layout[COUNT] then error('not ours') end
  local n, count = state_count, layout[COUNT]
  layout_by_key[key], bases[key], state_count = layout, n, n + 3 * count
  -- Three at a time: a call costs more than the numbers that it reads.
  while count >= 3 do
    states[n + 1], states[n + 2], states[n + 3], states[n + 4], states[n + 5], states[n + 6], states[n + 7],
      states[n + 8], states[n + 9], rest = unpack_struct(THREE_STATES, text, rest)
    n, count = n + 9, count - 3
  end
  for _ = 1, count do
    states[n + 1], states[n + 2], states[n + 3], rest = unpack_struct(STATE, text, rest)
    n = n + 3
  end
end

-- The layout of a value; false when it cannot be read.
local function layout_at(key)
  local layout = layout_by_key[key]
  if layout ~= nil then return layout end
  local text = raw[key]
  if not text then
    layout_by_key[key], bases[key] = layout_of(''), state_count
  elseif not guarded then
    read_packed(key, text)
  elseif not pcall(read_packed, key, text) then
    layout_by_key[key] = false
  end
  return layout_by_key[key]
end

-- Gives a value another layout with more seats. All states lie in a row, so the old ones may have to move to the end.
local function extend(key, layout)
  local base, count = bases[key], layout_by_key[key][COUNT]
  if base + 3 * count ~= state_count then
    for i = 1, 3 * count do states[state_count + i] = states[base + i] end
    bases[key], state_count = state_count, state_count + 3 * count
  end
  for i = state_count + 1, state_count + 3 * (layout[COUNT] - count) do states[i] = 0 end
  state_count = state_count + 3 * (layout[COUNT] - count)
  layout_by_key[key], relaid[key] = layout, true
end

-- A number as text. There are few of them: each is made once, where formatting all would cost more than the rest.
local function digits(number)
  local known = digits_of[number]
  if known then return known end
  known = string.format('%.0f', number)
  digits_of[number] = known
  return known
end

-- The states of some seats in a row.
local function states_text(base, low, high)
  local count = high - low + 1
  local format = state_formats[count]
  if not format then
    format = '<' .. string.rep('I7I7I4', count)
    state_formats[count] = format
  end
  return pack(format, unpack(states, base + 3 * low - 2, base + 3 * high))
end

-- Writes the states that changed, in their place.
local function store_states(key)
  local low, high, base = lows[key], highs[key], bases[key]
  local offset, text = 3 + #layout_by_key[key][TEXT] + STATE_BYTES * (low - 1)
  if high then
    text = states_text(base, low, high)
  else
    local r = base + 3 * low
    text = pack(STATE, states[r - 2], states[r - 1], states[r])
  end
  call('SETRANGE', keys[key], digits_of[offset] or digits(offset), text)
end
