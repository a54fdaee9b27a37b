--[[
  Algorithms whose state is a list. Each bucket is a value of its own, a msgpack array:

  log          {generation, window_us, used, us, units, us, units, ...}             oldest first
  concurrency  {generation, window_us, op_id, units, expires_us, op_id, units, ...} in the order taken
]]
local function fresh_list(code, window_us, generation)
  if code == LOG then return { generation, window_us, 0 } end
  return { generation, window_us }
end

local function newest_us(list) return #list > 3 and list[#list - 1] or nil end

-- Drops entries outside the window. If the clock stepped back, shifts the others back by as much and returns true.
local function advance_log(list, window_us)
  local newest = newest_us(list)
  local ahead_us = newest and newest - now_us or 0
  local since_us = now_us - window_us
  local kept, total = 4, 0
  for i = 4, #list, 2 do
    local us, units = list[i], list[i + 1]
    if ahead_us > 0 then us = us - ahead_us end
    if us > since_us then
      list[kept], list[kept + 1] = us, units
      kept, total = kept + 2, total + units
    end
  end
  for i = #list, kept, -1 do list[i] = nil end
  list[3] = total
  return ahead_us > 0
end

local function advance_permits(list, window_us)
  local latest_us, ahead, kept = now_us + window_us, false, 3
  for i = 3, #list, 3 do
    local expires_us = list[i + 2]
    if expires_us > latest_us then expires_us, ahead = latest_us, true end
    if expires_us > now_us then
      list[kept], list[kept + 1], list[kept + 2] = list[i], list[i + 1], expires_us
      kept = kept + 3
    end
  end
  for i = #list, kept, -1 do list[i] = nil end
  return ahead
end

local function advance_list(code, list, window_us)
  if code == LOG then return advance_log(list, window_us) end
  return advance_permits(list, window_us)
end

local function is_live_list(code, list) return #list > (code == LOG and 3 or 2) end

local function permit_index(list, op_id)
  for i = 3, #list, 3 do if list[i] == op_id then return i end end
  return nil
end

local function drop_permit(list, op_id)
  local index = permit_index(list, op_id)
  if index then for _ = 1, 3 do table.remove(list, index) end end
end

-- Returns the units in use, without the permit that op_id holds.
local function used_list(code, list, op_id)
  if code == LOG then return list[3] end
  local total = 0
  for i = 3, #list, 3 do if list[i] ~= op_id then total = total + list[i + 1] end end
  return total
end

local function charge_list(code, list, window_us, units, op_id)
  if code == CONCURRENCY then
    drop_permit(list, op_id)
    local n = #list
    list[n + 1], list[n + 2], list[n + 3] = op_id, units, now_us + window_us
    return
  end
  list[3] = list[3] + units
  local n = #list
  if newest_us(list) == now_us then list[n] = list[n] + units
  else list[n + 1], list[n + 2] = now_us, units end
end

-- `or_later`: the units may be in any entries from booked_us on, not only in the one of that time.
local function refund_list(code, list, window_us, units, booked_us, op_id, or_later)
  if code == CONCURRENCY then return drop_permit(list, op_id) end
  if booked_us <= now_us - window_us then return end
  local i = 4
  while i <= #list and list[i] < booked_us do i = i + 2 end
  while i <= #list and units > 0 do
    if list[i] ~= booked_us and not or_later then return end
    local taken = min(list[i + 1], units)
    units, list[3], list[i + 1] = units - taken, list[3] - taken, list[i + 1] - taken
    if list[i + 1] == 0 then table.remove(list, i); table.remove(list, i) end
  end
end

-- Returns the wait until `units` are available, if nothing else is taken.
local function wait_list_us(code, list, window_us, capacity, units, op_id)
  local in_use = used_list(code, list, op_id)
  if in_use + units <= capacity then return 0 end
  local frees = {}
  if code == LOG then
    for i = 4, #list, 2 do frees[#frees + 1] = { list[i] + window_us, list[i + 1] } end
  else
    for i = 3, #list, 3 do if list[i] ~= op_id then frees[#frees + 1] = { list[i + 2], list[i + 1] } end end
    table.sort(frees, function(one, other) return one[1] < other[1] end)
  end
  for i = 1, #frees do
    in_use = in_use - frees[i][2]
    if in_use + units <= capacity then return frees[i][1] - now_us end
  end
  return 0
end

local function ends_list_us(code, list, window_us)
  if code == LOG then
    local newest = newest_us(list)
    return newest and newest + window_us or now_us
  end
  local latest = now_us
  for i = 3, #list, 3 do latest = max(latest, list[i + 2]) end
  return latest
end

-- By key: the list (false: unreadable) and its algorithm. Then the changed keys.
local listed_values, list_codes, dirty_lists, dirty_list_count = {}, {}, {}, 0
-- By key. `kept_lists`: store the list even if it is empty. `list_exists`: whether the key exists after a write or a
-- reset by this batch; nil without one.
local kept_lists, list_exists = {}, {}

-- Parses a list. Throws if it is malformed.
local function read_list(code, text)
  local list = cmsgpack.unpack(text)
  local first, step = code == LOG and 4 or 3, code == LOG and 2 or 3
  if (#list - first + 1) % step ~= 0 then error('malformed') end
  for i = 1, #list do
    local wanted = code == CONCURRENCY and i >= 3 and i % 3 == 0 and 'string' or 'number'
    if type(list[i]) ~= wanted then error('malformed') end
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

local function set_list(key, code, list)
  if not list_codes[key] then
    dirty_list_count = dirty_list_count + 1
    dirty_lists[dirty_list_count] = key
  end
  listed_values[key], list_codes[key] = list, code
end

local function store_lists()
  for i = 1, dirty_list_count do
    local key = dirty_lists[i]
    local list, code = listed_values[key], list_codes[key]
    if kept_lists[key] then
      write(keys[key], cmsgpack.pack(list), ends_list_us(code, list, list[2]) + COUNTERFACTUAL_US - SLACK_US)
    elseif is_live_list(code, list) then
      write(keys[key], cmsgpack.pack(list), ends_list_us(code, list, list[2]))
    else
      call('DEL', keys[key])
    end
  end
end
