--[[
  Values: read all at once, decided on as tables, written once each. A value that cannot be read spoils the requests that
  touch it and no others; it is never overwritten.
]]
-- TTL only reclaims memory: entries say themselves when they stop mattering. The slack keeps a clock that steps (or a test
-- that moves it) from finding a full bucket where a spent one was.
local SLACK_US = 60000000
local ENTRIES_MAX = 512

local function check_entries(value)
  local count = 0
  for _, e in pairs(value) do
    local _ = e[1] + e[2] + e[3] + e[4] + e[5] + e[6] + e[7] + e[8] + e[9]
    count = count + 1
  end
  return count
end

local function load_values(keys)
  return { keys = keys, raw = redis.call('MGET', unpack(keys)), packed = {}, counts = {}, lists = {}, limits = {},
    broken = {}, dirty = {} }
end

local function packed_value(values, key)
  local value = values.packed[key]
  if value then return value end
  local raw = values.raw[key]
  if not raw then
    value, values.counts[key] = {}, 0
  else
    local read, unpacked = pcall(cmsgpack.unpack, raw)
    local sound, count = pcall(check_entries, unpacked)
    if not (read and sound) then values.broken[key] = true; return nil end
    value, values.counts[key] = unpacked, count
  end
  values.packed[key] = value
  return value
end

local function listed_value(values, key, limit)
  local list = values.lists[key]
  if list then return list end
  local raw = values.raw[key]
  if not raw then
    list = fresh_list(limit)
  else
    local read, unpacked = pcall(cmsgpack.unpack, raw)
    if not read or type(unpacked) ~= 'table' or type(unpacked[2]) ~= 'number' then return nil end
    list = unpacked
  end
  values.lists[key], values.limits[key] = list, limit
  return list
end

local function write(key, value, ends, now_us)
  redis.call('SET', key, cmsgpack.pack(value), 'PX', max(1, ceil((ends - now_us + SLACK_US) / 1000)))
end

local function store_packed(key, value, now_us)
  local latest = 0
  for name, entry in pairs(value) do
    local ends = ends_us(entry)
    if ends + SLACK_US < now_us then value[name] = nil else latest = max(latest, ends) end
  end
  if next(value) == nil then redis.call('DEL', key) else write(key, value, latest, now_us) end
end

local function store_values(values, now_us)
  for index in pairs(values.dirty) do
    local key, list = values.keys[index], values.lists[index]
    if not list then
      store_packed(key, values.packed[index], now_us)
    elseif is_live_list(values.limits[index], list) then
      write(key, list, ends_list_us(values.limits[index], list, now_us), now_us)
    else
      redis.call('DEL', key)
    end
  end
end
