--[[
  Packed values: all read with one command, changed in tables, each written once. An unreadable value fails the requests
  that touch it and no others, and is never overwritten. A key of another type counts as absent. Most values
  have one of a few layouts, and each layout is parsed once per batch.
]]
local THREE_STATES = '<I7I7I4I7I7I4I7I7I4'
-- generation, code, capacity, tick, a, b, and hold if the limit is leased, in base 36.
local SHAPE_PATTERN = '^(%w+):(%w+):(%w+):(%w+):(%w+):(%w+):?(%w*)$'

local pack, unpack_struct = struct.pack, struct.unpack

-- Fields of a layout. INDEX_BY_NAME: index of each bucket. FOUND_INDEXES: results of find_indexes (plain.lua), by set.
local TEXT, COUNT, NAMES, SHAPES, INDEX_BY_NAME, FOUND_INDEXES = 1, 2, 3, 4, 5, 6
local layouts = {}
-- States of all values in one array: at, x, y of bucket 1 of a value, of bucket 2, ... `state_count` is its length.
local states, state_count = {}, 0
-- By key: its layout (false: unreadable) and the offset of its states.
local layout_by_key, bases = {}, {}
-- Changed keys. By key:
--   first_dirty, last_dirty  lowest and highest index of a changed bucket; last_dirty is nil if only one changed
--   layout_changed           whether the layout changed
--   ttl_due                  whether to renew the TTL
-- Rare flags have their own tables, because growing a table is slow.
local dirty_keys, dirty_count, first_dirty, last_dirty, layout_changed, ttl_due = {}, 0, {}, {}, {}, {}
local digits_of, state_formats = {}, {}
-- Whether values are read with pcall: only after a first pass without it has failed (apply.lua).
local uses_pcall = false

local function mark_dirty(key, index)
  local low = first_dirty[key]
  if not low then
    dirty_count = dirty_count + 1
    dirty_keys[dirty_count], first_dirty[key] = key, index
  elseif index < low then
    first_dirty[key], last_dirty[key] = index, last_dirty[key] or low
  elseif index > (last_dirty[key] or low) then
    last_dirty[key] = index
  end
end

-- Parses a shape into the fields of a limit. Throws if the shape is malformed.
local function numbers_of(shape)
  local known = numbers_by_shape[shape]
  if known then return known end
  local fields = { string.match(shape, SHAPE_PATTERN) }
  for i = 1, 6 do fields[i] = tonumber(fields[i], 36) end
  fields[HOLD] = tonumber(fields[7], 36) or 0
  numbers_by_shape[shape] = fields
  return fields
end

-- Parses a layout. Throws if it is malformed.
local function layout_of(text)
  local known = layouts[text]
  if known then return known end
  local names, shapes, index_by_name, count, rest = {}, {}, {}, 0, 1
  while rest <= #text do
    count = count + 1
    names[count], shapes[count], rest = unpack_struct(BUCKET, text, rest)
    numbers_of(shapes[count])
    index_by_name[names[count]] = count
  end
  local layout = { text, count, names, shapes, index_by_name, {} }
  layouts[text] = layout
  return layout
end

local function bucket_text(name, shape) return pack(BUCKET, #name, name, #shape, shape) end

local function read_packed(key, text)
  local layout_text, rest = unpack_struct(LAYOUT, text)
  local layout = layouts[layout_text] or layout_of(layout_text)
  if #text ~= rest - 1 + STATE_BYTES * layout[COUNT] then error('malformed') end
  local n, count = state_count, layout[COUNT]
  layout_by_key[key], bases[key], state_count = layout, n, n + 3 * count
  -- Three states per call: the call costs more than reading its numbers.
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

-- Returns the layout of a value; false if it is unreadable.
local function layout_at(key)
  local layout = layout_by_key[key]
  if layout ~= nil then return layout end
  local text = raw[key]
  if not text then
    layout_by_key[key], bases[key] = layout_of(''), state_count
  elseif not uses_pcall then
    read_packed(key, text)
  elseif not pcall(read_packed, key, text) then
    layout_by_key[key] = false
  end
  return layout_by_key[key]
end

-- Replaces the layout by one with more buckets. Unless its states are the last in the array, they move to the end.
local function extend(key, layout)
  local base, count = bases[key], layout_by_key[key][COUNT]
  if base + 3 * count ~= state_count then
    for i = 1, 3 * count do states[state_count + i] = states[base + i] end
    bases[key], state_count = state_count, state_count + 3 * count
  end
  for i = state_count + 1, state_count + 3 * (layout[COUNT] - count) do states[i] = 0 end
  state_count = state_count + 3 * (layout[COUNT] - count)
  layout_by_key[key], layout_changed[key] = layout, true
end

-- Formats a number. Few different ones occur, so each is formatted once.
local function digits(number)
  local known = digits_of[number]
  if known then return known end
  known = string.format('%.0f', number)
  digits_of[number] = known
  return known
end

-- Packs the states of consecutive buckets.
local function states_text(base, low, high)
  local count = high - low + 1
  local format = state_formats[count]
  if not format then
    format = '<' .. string.rep('I7I7I4', count)
    state_formats[count] = format
  end
  return pack(format, unpack(states, base + 3 * low - 2, base + 3 * high))
end

-- Overwrites the changed states in place; the TTL stays.
local function store_states(key)
  local low, high, base = first_dirty[key], last_dirty[key], bases[key]
  local offset, text = 3 + #layout_by_key[key][TEXT] + STATE_BYTES * (low - 1)
  if high then
    text = states_text(base, low, high)
  else
    local r = base + 3 * low
    text = pack(STATE, states[r - 2], states[r - 1], states[r])
  end
  call('SETRANGE', keys[key], digits_of[offset] or digits(offset), text)
end

-- Returns a call with one take as a batch.
local function batch_of_single()
  local all, set, leased = {}, {}, { 6, 1, 1, 0 }
  for i = 1, floor((#ARGV - 1) / 2) do
    local name, shape = struct.unpack(BUCKET, ARGV[2 * i])
    local known = numbers_of(shape)
    local limit = { unpack(known, GENERATION, B) }
    limit[ID], limit[SHAPE], limit[HOLD] = name, shape, known[HOLD]
    all[i], set[i] = limit, i
    if not cost then
      local _, _, _, _, _, low, high, kind, gives = string.match(ARGV[2 * i + 1], LEASED_PATTERN)
      local n = #leased
      leased[4], leased[n + 1], leased[n + 2], leased[n + 3] = low + 0, high + 0, kind + 0, 0
      for number in string.gmatch(gives, '%d+') do leased[#leased + 1] = number + 0 end
      leased[n + 3] = (#leased - n - 3) / 3
    end
  end
  return { all, { set }, {}, cost and { 4, 1, 1, cost, 1 } or leased }
end
