--[[
  Values: read all at once, decided on as tables, written once each. A value that cannot be read spoils the requests that
  touch it and no others; it is never overwritten.

  A packed value is one flat array, ten fields per bucket: name, then the limit that wrote it (generation, code, capacity,
  tick, a, b), then its state (at, x, y).
]]
-- TTL only reclaims memory: buckets say themselves when they stop mattering. The slack keeps a clock that steps (or a test
-- that moves it) from finding a full bucket where a spent one was.
local SLACK_US = 60000000
local BUCKETS_MAX = 512

local packed_values, listed_values, list_codes, dirty = {}, {}, {}, {}

local function read_packed(text)
  local value = cmsgpack.unpack(text)
  local count = #value
  if count % 10 ~= 0 or (count == 0 and next(value)) then error('not ours') end
  for i = 2, count, 10 do
    local _ = value[i] + value[i + 1] + value[i + 2] + value[i + 3] + value[i + 4] + value[i + 5] + value[i + 6] + value[i + 7]
      + value[i + 8]
  end
  return value
end

local function packed_value(key)
  local value = packed_values[key]
  if value ~= nil then return value end
  value = {}
  if raw[key] then
    local sound, unpacked = pcall(read_packed, raw[key])
    value = sound and unpacked
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

local function write(key, value, ends)
  redis.call('SET', key, cmsgpack.pack(value), 'PX', max(1, ceil((ends - now_us + SLACK_US) / 1000)))
end

-- Buckets that have not mattered for a while are left out when a value is written.
local function store_packed(key, value)
  local latest, kept, count = 0, 0, #value
  for i = 1, count, 10 do
    local ends = ends_us(value[i + 2], value[i + 4], value[i + 5], value[i + 6], value[i + 7], value[i + 8])
    if ends + SLACK_US >= now_us then
      if ends > latest then latest = ends end
      if kept < i - 1 then for j = 1, 10 do value[kept + j] = value[i - 1 + j] end end
      kept = kept + 10
    end
  end
  for i = count, kept + 1, -1 do value[i] = nil end
  if kept == 0 then redis.call('DEL', key) else write(key, value, latest) end
end

local function store_values()
  for key in pairs(dirty) do
    local list, code = listed_values[key], list_codes[key]
    if not list then
      store_packed(KEYS[key], packed_values[key])
    elseif is_live_list(code, list) then
      write(KEYS[key], list, ends_list_us(code, list, list[2]))
    else
      redis.call('DEL', KEYS[key])
    end
  end
end
