--[[
  The verbs: what a request does to its buckets. Everything is decided before anything is charged.
]]
local GRANTED, REFUSED, UNREADABLE, CROWDED = 1, 0, -1, -2
local NOT_SHORT, NOW, NEVER, STALE = 0, 1, 2, 3
local ENFORCE, SHADOW, FORCE = 0, 1, 2

local function bucket_name(limit, detail)
  return detail == '' and limit[7] or limit[7] .. '|' .. detail
end

-- The entry of a charge as of now under its limit, and whether a newer limit wrote it; nil and a status when it cannot be
-- had. What an edit or a clock that stepped back makes of an entry is kept, unless the request only looks.
local function settle_packed(values, key, limit, detail, now_us, keeps)
  local value = packed_value(values, key)
  if not value then return nil, UNREADABLE end
  local name = bucket_name(limit, detail)
  local entry = value[name]
  if not entry then
    if values.counts[key] >= ENTRIES_MAX then return nil, CROWDED end
    return fresh(limit, now_us), false
  end
  entry = copied(entry)
  local moved = advance(entry, now_us)
  if not is_live(entry) then return fresh(limit, now_us), false end
  if entry[GENERATION] > limit[GENERATION] then return entry, true end
  if not same_shape(entry, limit) then entry, moved = inherit(entry, limit, now_us), true end
  if moved and keeps then
    entry[GENERATION] = limit[GENERATION]
    value[name], values.dirty[key] = entry, true
  end
  return entry, false
end

local function keep_list(values, key, limit, list)
  list[GENERATION], list[2] = limit[GENERATION], limit[A]
  values.lists[key], values.limits[key], values.dirty[key] = list, limit, true
end

local function settle_listed(values, key, limit, now_us, keeps)
  local list = listed_value(values, key, limit)
  if not list then return nil, UNREADABLE end
  list = { unpack(list) }
  local moved = advance_list(limit, list, now_us)
  if list[2] ~= limit[A] then
    -- What had left the old window does not come back in a longer one.
    if limit[CODE] == LOG then advance_log({ [A] = list[2] }, list, now_us) end
    list[2], moved = limit[A], true
  end
  if list[GENERATION] > limit[GENERATION] and is_live_list(limit, list) then return list, true end
  if moved and keeps then keep_list(values, key, limit, list) end
  return list, false
end

local function settle(values, key, limit, detail, now_us, keeps)
  if limit[CODE] >= LOG then return settle_listed(values, key, limit, now_us, keeps) end
  return settle_packed(values, key, limit, detail, now_us, keeps)
end

local function keep(values, key, limit, detail, state)
  if limit[CODE] >= LOG then return keep_list(values, key, limit, state) end
  values.dirty[key] = true
  state[GENERATION] = limit[GENERATION]
  local value, name = values.packed[key], bucket_name(limit, detail)
  if not value[name] then values.counts[key] = values.counts[key] + 1 end
  value[name] = state
end

local function spend(values, key, limit, detail, state, now_us, units, op_id)
  if limit[CODE] >= LOG then charge_list(limit, state, now_us, units, op_id) else charge(state, units) end
  keep(values, key, limit, detail, state)
end

-- Units to charge if the request is granted, and why `low` units cannot be had.
local function ask(limit, in_use, low, high, kind, stale)
  local short = NOT_SHORT
  if stale then short = STALE
  elseif low > limit[CAPACITY] then short = NEVER
  elseif in_use + low > limit[CAPACITY] then short = NOW end
  if kind == FORCE then return short == STALE and 0 or high, short end
  if short ~= NOT_SHORT then return 0, short end
  return min(high, limit[CAPACITY] - in_use), short
end

-- A bucket used twice in one request counts what the earlier uses would take, and shares their state.
local function earlier_use(request, works, i)
  local units, state = 0, nil
  for j = 3, i - 1 do
    local a, b = request[j], request[i]
    if a[1] == b[1] and a[2] == b[2] and a[3] == b[3] then units, state = units + works[j].units, works[j].state end
  end
  return units, state
end

local function decide(values, limits, request, now_us, keeps)
  local works, granted = {}, true
  for i = 3, #request do
    local c = request[i]
    local limit = limits[c[2]]
    local taken, twin = 0, nil
    if i > 3 then taken, twin = earlier_use(request, works, i) end
    local state, stale = settle(values, c[1], limit, c[3], now_us, keeps)
    if not state then return nil, stale end
    state = twin or state
    local in_use = taken + (limit[CODE] >= LOG and used_list(limit, state, request[2]) or used(state, now_us))
    local units, short = ask(limit, in_use, c[4], c[5], c[6], stale)
    if short ~= NOT_SHORT and c[6] == ENFORCE then granted = false end
    works[i] = { limit = limit, state = state, units = units, short = short }
  end
  return works, granted
end

local function is_renewal(request, works)
  local permits = false
  for i = 3, #request do
    if works[i].limit[CODE] == CONCURRENCY then
      if not permit_index(works[i].state, request[2]) then return false end
      permits = true
    end
  end
  return permits
end

local function answer(reply, work, spent, min_units, now_us, op_id)
  local n, limit, state = #reply, work.limit, work.state
  reply[n + 1], reply[n + 2] = work.short, spent
  if limit[CODE] < LOG then
    reply[n + 3], reply[n + 4] = state[X], state[Y]
    return
  end
  reply[n + 3] = used_list(limit, state, nil)
  reply[n + 4] = work.short == NOW and wait_list_us(limit, state, now_us, min_units, op_id) or 0
  reply[n + 5] = ends_list_us(limit, state, now_us) - now_us
end

local function run(values, limits, request, now_us, reply, commit)
  local works, granted = decide(values, limits, request, now_us, commit)
  if not works then
    reply[#reply + 1] = granted
    return
  end
  reply[#reply + 1] = granted and GRANTED or REFUSED
  reply[#reply + 1] = commit and is_renewal(request, works) and 1 or 0
  for i = 3, #request do
    local c, work = request[i], works[i]
    local spent = commit and (granted or c[6] == FORCE) and work.units or 0
    if spent > 0 then spend(values, c[1], work.limit, c[3], work.state, now_us, spent, request[2]) end
    answer(reply, work, spent, c[4], now_us, request[2])
  end
end

local function take(values, limits, request, now_us, reply) run(values, limits, request, now_us, reply, true) end
local function peek(values, limits, request, now_us, reply) run(values, limits, request, now_us, reply, false) end

-- Older rules do not touch what newer ones wrote, and to a vacant bucket there is nothing to give.
local function give(values, limits, request, now_us, reply)
  local status = GRANTED
  for i = 3, #request do
    local c = request[i]
    local limit, units = limits[c[2]], c[4]
    local listed = limit[CODE] >= LOG
    local state, stale = settle(values, c[1], limit, c[3], now_us, false)
    if not state then
      status = stale
    elseif stale then
      -- nothing
    elseif units < 0 then
      spend(values, c[1], limit, c[3], state, now_us, -units, request[2])
    elseif listed and is_live_list(limit, state) then
      refund_list(limit, state, units, c[5], request[2])
      keep(values, c[1], limit, c[3], state)
    elseif not listed and is_live(state) then
      refund(state, now_us, units, c[5])
      keep(values, c[1], limit, c[3], state)
    end
  end
  reply[#reply + 1] = status
end

local function reset(values, limits, request, _, reply)
  local c = request[3]
  local key, limit = c[1], limits[c[2]]
  values.dirty[key] = true
  if limit[CODE] >= LOG then
    values.lists[key], values.limits[key] = fresh_list(limit), limit
  else
    local value = packed_value(values, key) or {} -- a value that cannot be read is dropped whole: that is what a reset is for
    values.packed[key], value[bucket_name(limit, c[3])] = value, nil
    values.counts[key] = values.counts[key] or 0
  end
  reply[#reply + 1] = GRANTED
end

local VERBS = { take, peek, give, reset }
