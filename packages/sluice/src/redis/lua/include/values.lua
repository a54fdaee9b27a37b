--[[
  Values: read all at once, decided on as tables, written once each. A value that cannot be read spoils the requests that
  touch it and no others; it is never overwritten.

  A packed value is a row of records (RECORD below), in memory one flat table of five fields per bucket: name, shape of the
  limit that wrote it (see SHAPE), and its state at, x, y. A listed value is a msgpack array.
]]
-- TTL only reclaims memory: buckets say themselves when they stop mattering. The slack keeps a clock that steps (or a test
-- that moves it) from finding a full bucket where a spent one was.
local SLACK_US = 60000000
local BUCKETS_MAX = 512
-- Name and shape, each behind its length, then at and x of 7 bytes and y of 4: small enough for the smallest kind of string
-- that Redis has, and read and written without a table.
local RECORD = '<Hc0Bc0I7I7I4'
-- generation, code, capacity, tick, a, b in base 36.
local SHAPE = '^(%w+):(%w+):(%w+):(%w+):(%w+):(%w+)$'

local pack, unpack_record = struct.pack, struct.unpack

local packed_values, listed_values, list_codes, dirty, shapes, ttls = {}, {}, {}, {}, {}, {}
local guarded = false

local function start_again()
  packed_values, listed_values, list_codes, dirty = {}, {}, {}, {}
  reply, said, guarded = {}, 0, true
end

-- The numbers of a shape, laid out as in a limit. An error when it is none.
local function numbers_of(shape)
  local known = shapes[shape]
  if known then return known end
  local parts = { string.match(shape, SHAPE) }
  for i = 1, 6 do parts[i] = tonumber(parts[i], 36) end
  shapes[shape] = parts
  return parts
end

local function read_packed(text)
  local name, shape, at, x, y, rest = unpack_record(RECORD, text)
  local value = { name, shape, at, x, y }
  if not shapes[shape] then numbers_of(shape) end
  while rest <= #text do
    name, shape, at, x, y, rest = unpack_record(RECORD, text, rest)
    numbers_of(shape)
    local n = #value
    value[n + 1], value[n + 2], value[n + 3], value[n + 4], value[n + 5] = name, shape, at, x, y
  end
  return value
end

local function packed_value(key)
  local value = packed_values[key]
  if value ~= nil then return value end
  value = {}
  if raw[key] then
    if guarded then
      local sound, read = pcall(read_packed, raw[key])
      value = sound and read
    else
      value = read_packed(raw[key])
    end
  end
  packed_values[key] = value
  return value
end

local function listed_value(key, code, window_us, generation)
  local list = listed_values[key]
  if list ~= nil then return list end
  list = fresh_list(code, window_us, generation)
  if raw[key] then
    local sound, unpacked = pcall(cmsgpack.unpack, raw[key])
    list = sound and type(unpacked) == 'table' and type(unpacked[2]) == 'number' and unpacked
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

local function ends_of(value, i)
  local n = numbers_of(value[i + 1])
  return ends_us(n[2], n[4], n[5], n[6], value[i + 2], value[i + 3])
end

local function record_of(value, i)
  local name, shape = value[i], value[i + 1]
  return pack(RECORD, #name, name, #shape, shape, value[i + 2], value[i + 3], value[i + 4])
end

-- Buckets that have not mattered for a while are left out when a value is written.
local function store_packed(key, value)
  if #value == 5 then return write(key, record_of(value, 1), ends_of(value, 1)) end
  local records, latest = {}, 0
  for i = 1, #value, 5 do
    local ends = ends_of(value, i)
    if ends + SLACK_US >= now_us then
      records[#records + 1] = record_of(value, i)
      latest = max(latest, ends)
    end
  end
  if #records == 0 then redis.call('DEL', key) else write(key, table.concat(records), latest) end
end

local function store_values()
  for key in pairs(dirty) do
    local list, code = listed_values[key], list_codes[key]
    if not list then
      store_packed(KEYS[key], packed_values[key])
    elseif is_live_list(code, list) then
      write(KEYS[key], cmsgpack.pack(list), ends_list_us(code, list, list[2]))
    else
      redis.call('DEL', KEYS[key])
    end
  end
end
