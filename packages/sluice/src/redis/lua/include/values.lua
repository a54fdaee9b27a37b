--[[
  Values: read all at once, decided on as tables, written once each. A value that cannot be read spoils the requests
  that touch it and no others; it is never overwritten.

  A packed value is a row of records (RECORD below): name, shape of the limit that wrote it (see SHAPE), and its state
  at, x, y. The records of all packed values lie in five tables side by side, and each knows the next of its value: a
  table per value would cost more than all arithmetic. A listed value is a msgpack array.
]]
-- TTL only reclaims memory: buckets say themselves when they stop mattering. The slack keeps a clock that steps (or a
-- test that moves it) from finding a full bucket where a spent one was.
local SLACK_US = 60000000
local BUCKETS_MAX = 1024
-- The TTL of a value is set anew at the first change in each of these periods, and covers all that can happen in it.
local PERIOD_US = 15000000
-- Name and shape, each behind its length, then the state: at and x of 7 bytes and y of 4. Read and written without a
-- table, and a state can be written alone, in its place.
local RECORD = '<Hc0Bc0I7I7I4'
local STATE, STATE_BYTES = '<I7I7I4', 18
-- generation, code, capacity, tick, a, b in base 36.
local SHAPE = '^(%w+):(%w+):(%w+):(%w+):(%w+):(%w+)$'

local pack, unpack_record = struct.pack, struct.unpack

-- By record; 0 in `following` ends a value; `offsets` is where the state stands in the stored text.
local names, shapes, record_ats, record_xs, record_ys, following, offsets = {}, {}, {}, {}, {}, {}, {}
local record_count = 0
-- By key: the first record (0: none, false: the value cannot be read) and how many there are; the list; what has
-- changed (a record whose state did, or true for more than that), and whether the TTL must be set.
local firsts, record_counts, listed_values, list_codes = {}, {}, {}, {}
local dirty, dirty_keys, dirty_count, aged = {}, {}, 0, {}
local numbers_by_shape, ttls = {}, {}
local guarded = false

local function start_again()
  firsts, record_counts, listed_values, list_codes = {}, {}, {}, {}
  dirty, dirty_keys, dirty_count, aged = {}, {}, 0, {}
  reply, said, guarded = {}, 0, true
end

-- `what`: the record whose state changed, or true when more did.
local function mark_dirty(key, what)
  local marked = dirty[key]
  if marked == nil then
    dirty_count = dirty_count + 1
    dirty_keys[dirty_count] = key
    dirty[key] = what
  elseif marked ~= what then
    dirty[key] = true
  end
end

-- Whether a change from one state to another is the first in its period, or reaches beyond what the TTL was set for.
local function outlives_ttl(limit, old_at, at, x)
  if limit[2] > LEAKY then return at ~= old_at end
  local tick = limit[4]
  return at < old_at or x > limit[3] * limit[5] or floor(old_at * tick / PERIOD_US) ~= floor(at * tick / PERIOD_US)
end

-- The numbers of a shape, laid out as in a limit. An error when it is none.
local function numbers_of(shape)
  local known = numbers_by_shape[shape]
  if known then return known end
  local parts = { string.match(shape, SHAPE) }
  for i = 1, 6 do parts[i] = tonumber(parts[i], 36) end
  numbers_by_shape[shape] = parts
  return parts
end

local function add_record(key, name, shape, at, x, y)
  local r = record_count + 1
  record_count = r
  names[r], shapes[r], record_ats[r], record_xs[r], record_ys[r] = name, shape, at, x, y
  following[r] = firsts[key] or 0
  firsts[key] = r
  record_counts[key] = (record_counts[key] or 0) + 1
  return r
end

local function read_packed(key, text)
  local rest, length, r, count = 1, #text, record_count, 0
  repeat
    r, count = r + 1, count + 1
    names[r], shapes[r], record_ats[r], record_xs[r], record_ys[r], rest = unpack_record(RECORD, text, rest)
    if not numbers_by_shape[shapes[r]] then numbers_of(shapes[r]) end
    following[r], offsets[r] = r + 1, rest - 1 - STATE_BYTES
  until rest > length
  following[r] = 0
  firsts[key], record_counts[key], record_count = record_count + 1, count, r
end

-- The first record of a value: 0 when it has none, false when it cannot be read.
local function first_of(key)
  local first = firsts[key]
  if first ~= nil then return first end
  local text = raw[key]
  if not text then
    firsts[key], record_counts[key] = 0, 0
  elseif not guarded then
    read_packed(key, text)
  elseif not pcall(read_packed, key, text) then
    firsts[key] = false
  end
  return firsts[key]
end

local function record_named(key, name)
  local r = first_of(key)
  while r and r > 0 do
    if names[r] == name then return r end
    r = following[r]
  end
  return r
end

-- A list as include/listed.lua describes it. An error when it is none.
local function read_list(code, text)
  local list = cmsgpack.unpack(text)
  local first, step = code == LOG and 4 or 3, code == LOG and 2 or 3
  if (#list - first + 1) % step ~= 0 then error('not ours') end
  for i = 1, #list do
    local wanted = code == CONCURRENCY and i >= 3 and i % 3 == 0 and 'string' or 'number'
    if type(list[i]) ~= wanted then error('not ours') end
  end
  return list
end

local function listed_value(key, code, window_us, generation)
  local list = listed_values[key]
  if list ~= nil then return list end
  list = fresh_list(code, window_us, generation)
  if raw[key] then
    local sound, read = pcall(read_list, code, raw[key])
    list = sound and read
  end
  listed_values[key] = list
  return list
end

-- In whole seconds: texts of few numbers are made once, where formatting each number would cost more than all the rest.
local function write(key, text, ends)
  local seconds = max(1, ceil((ends - now_us + SLACK_US) / 1000000))
  local ttl = ttls[seconds]
  if not ttl then
    ttl = string.format('%.0f', seconds)
    ttls[seconds] = ttl
  end
  redis.call('SETEX', key, ttl, text)
end

local function ends_of(r)
  local n = numbers_of(shapes[r])
  return ends_us(n[2], n[4], n[5], n[6], record_ats[r], record_xs[r])
end

-- A bucket may be emptied at any time, so its TTL is that of an empty one.
local function lasts_of(r)
  local n = numbers_of(shapes[r])
  local x = n[2] <= LEAKY and max(record_xs[r], n[3] * n[5]) or 0
  return ends_us(n[2], n[4], n[5], n[6], record_ats[r], x)
end

local function record_text(r)
  local name, shape = names[r], shapes[r]
  return pack(RECORD, #name, name, #shape, shape, record_ats[r], record_xs[r], record_ys[r])
end

-- Buckets that have not mattered for a while are left out when a value is written.
local function store_packed(index, first)
  local key, changed = KEYS[index], dirty[index]
  if changed ~= true and not aged[index] then
    local state = pack(STATE, record_ats[changed], record_xs[changed], record_ys[changed])
    return redis.call('SETRANGE', key, tostring(offsets[changed]), state)
  end
  local kept_texts, latest, kept, r = {}, 0, 0, first
  while r > 0 do
    if ends_of(r) + SLACK_US >= now_us then
      kept = kept + 1
      kept_texts[kept] = record_text(r)
      latest = max(latest, lasts_of(r))
    end
    r = following[r]
  end
  if kept == 0 then return redis.call('DEL', key) end
  local text = kept == 1 and kept_texts[1] or table.concat(kept_texts)
  if aged[index] then write(key, text, latest) else redis.call('SET', key, text, 'KEEPTTL') end
end

local function store_values()
  for i = 1, dirty_count do
    local key = dirty_keys[i]
    local list, code = listed_values[key], list_codes[key]
    if not list then
      store_packed(key, firsts[key] or 0)
    elseif is_live_list(code, list) then
      write(KEYS[key], cmsgpack.pack(list), ends_list_us(code, list, list[2]))
    else
      redis.call('DEL', KEYS[key])
    end
  end
end
