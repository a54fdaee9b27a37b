--[[
  The verbs: what a request does to its buckets. Everything is decided before anything is charged.
]]
local NOT_SHORT, NOW, NEVER, STALE = 0, 1, 2, 3

-- By part: units to charge if the request is granted, why it is short, and the first part that uses the same bucket.
local units_of, shorts, roots = {}, {}, {}

-- Units to charge if the request is granted, and why `low` units cannot be had. `room`: how many can be on lease.
local function ask(capacity, in_use, low, high, kind, stale, room)
  local short = NOT_SHORT
  if stale then short = STALE
  elseif low > capacity then short = NEVER
  elseif in_use + low > capacity then short = NOW end
  if kind == FORCE then return short == STALE and 0 or high, short end
  if short ~= NOT_SHORT then return 0, short end
  return min(high, capacity - in_use, kind == ALL_HELD and room or low + room), short
end

-- The first part that uses the same bucket, and what the uses in between would take.
local function earlier_uses(at, part)
  local root, taken = part, 0
  local here = at + 6 * (part - 1)
  for other = part - 1, 1, -1 do
    local there, same = at + 6 * (other - 1), true
    for field = 0, 2 do same = same and numbers[there + field] == numbers[here + field] end
    if same then root, taken = other, taken + units_of[other] end
  end
  return root, taken
end

-- Whether all parts may be had, or a negative status. A bucket is asked for twice only if the request `repeats`.
local function decide(at, parts, op_id, keeps, repeats)
  local granted = true
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local limit, kind = limits[numbers[i + 1]], numbers[i + 5]
    local root, in_use = part, 0
    if repeats then root, in_use = earlier_uses(at, part) end
    if root == part then
      local status = settle(part, numbers[i], limit, numbers[i + 2], keeps)
      if status < 0 then return status end
    end
    roots[part] = root
    if limit[CODE] >= LOG then in_use = in_use + used_list(limit[CODE], lists[root], op_id)
    else in_use = in_use + used(limit[CODE], limit[TICK], limit[A], ats[root], xs[root], ys[root]) end
    local room = held_room(limit, ys[root])
    local units, short = ask(limit[CAPACITY], in_use, numbers[i + 3], numbers[i + 4], kind, stales[root], room)
    units_of[part], shorts[part] = units, short
    if short ~= NOT_SHORT and kind == ENFORCE then granted = false end
  end
  return granted
end

local function is_renewal(at, parts, op_id)
  local permits = false
  for part = 1, parts do
    if limits[numbers[at + 6 * (part - 1) + 1]][CODE] == CONCURRENCY then
      if not permit_index(lists[roots[part]], op_id) then return false end
      permits = true
    end
  end
  return permits
end

local function answer_list(part, limit, low, spent, op_id)
  local short, list = shorts[part], lists[roots[part]]
  local code, window_us = limit[CODE], limit[A]
  say(short)
  say(spent)
  say(used_list(code, list, nil))
  say(short == NOW and wait_list_us(code, list, window_us, limit[CAPACITY], low, op_id) or 0)
  say(ends_list_us(code, list, window_us) - now_us)
end

local function run(at, parts, op_id, commits, repeats)
  local granted = decide(at, parts, op_id, commits, repeats)
  if granted ~= true and granted ~= false then return say(granted) end
  say(granted and 1 or 0)
  say(op_id ~= '' and commits and is_renewal(at, parts, op_id) and 1 or 0)
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local limit = limits[numbers[i + 1]]
    local spent = commits and (granted or numbers[i + 5] == FORCE) and units_of[part] or 0
    local root = roots[part]
    if spent > 0 then
      local kind, held = numbers[i + 5], 0
      if limit[HOLD] > 0 and kind ~= FORCE then held = kind == ALL_HELD and spent or max(0, spent - numbers[i + 3]) end
      spend(root, numbers[i], limit, numbers[i + 2], spent, op_id, held)
    end
    if limit[CODE] >= LOG then
      answer_list(part, limit, numbers[i + 3], spent, op_id)
    else
      local n = said
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = shorts[part], spent, xs[root], ys[root]
      said = n + 4
    end
  end
end

local function take(at, parts, op_id) run(at, parts, op_id, true, false) end
local function take_repeating(at, parts, op_id) run(at, parts, op_id, true, true) end
local function peek(at, parts, op_id) run(at, parts, op_id, false, true) end

local function refund(part, limit, units, booked_us, op_id, settled)
  if limit[CODE] >= LOG then
    refund_list(limit[CODE], lists[part], limit[A], units, booked_us, op_id, settled > 0)
  else
    xs[part], ys[part] =
      refunded(limit[CODE], limit[TICK], limit[A], limit[B], limit[HOLD], ats[part], xs[part], ys[part], units,
        booked_us, settled)
  end
end

-- Older rules do not touch what newer ones wrote, and to a vacant bucket there is nothing to give.
local function give_parts(at, parts, op_id)
  local worst = 1
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    local key, limit, detail, units = numbers[i], limits[numbers[i + 1]], numbers[i + 2], numbers[i + 3]
    local settled = numbers[i + 5]
    local status = settle(part, key, limit, detail, false)
    if status < 0 then
      worst = status
    elseif units < 0 and not stales[part] then
      spend(part, key, limit, detail, -units, op_id, 0)
    elseif (units > 0 or (settled > 0 and limit[HOLD] > 0)) and not stales[part] and is_live(part, limit) then
      refund(part, limit, units, numbers[i + 4], op_id, settled)
      keep(part, key, limit, detail)
    end
  end
  return worst
end

local function give(at, parts, op_id) say(give_parts(at, parts, op_id)) end

-- By key: until when a give is remembered.
local marks = {}

-- All or nothing: a value that cannot be read fails the give as a whole, so that it can be tried again.
local function give_once(at, parts, op_id)
  local mark, until_us = numbers[at - 2], numbers[at - 1]
  if now_us > until_us then return say(3) end
  if raw[mark] or marks[mark] then return say(2) end
  for part = 1, parts do
    local i = at + 6 * (part - 1)
    if settle(part, numbers[i], limits[numbers[i + 1]], numbers[i + 2], false) == UNREADABLE then
      return say(UNREADABLE)
    end
  end
  give_parts(at, parts, op_id)
  marks[mark] = until_us
  say(1)
end

local function store_marks()
  for mark, until_us in pairs(marks) do write(keys[mark], '1', until_us) end
end

-- A value that cannot be read is dropped whole: that is what a reset is for.
local function reset(at)
  local key, limit = numbers[at], limits[numbers[at + 1]]
  if limit[CODE] >= LOG then
    set_list(key, limit[CODE], fresh_list(limit[CODE], limit[A], limit[GENERATION]))
  elseif not layout_at(key) then
    layout_by_key[key], bases[key], aged[key] = layout_of(''), state_count, true
    mark_dirty(key, 0)
  else
    local layout = layout_by_key[key]
    local seat = layout[SEATS][name_of(limit, numbers[at + 2])]
    if seat then
      -- As if it had not been used for long: whoever uses it next sets the TTL anew.
      local r = bases[key] + 3 * seat - 2
      states[r], states[r + 1], states[r + 2] = 0, 0, 0
      mark_dirty(key, seat)
    end
  end
  say(1)
end

-- Writes a part out where the others are.
local function append(key, limit, fourth, fifth, sixth)
  local n = #numbers
  numbers[n + 1], numbers[n + 2], numbers[n + 3] = key, limit[INDEX], 0
  numbers[n + 4], numbers[n + 5], numbers[n + 6] = fourth, fifth, sixth
end

-- The long way of a plain take, answered as any other.
local function take_at_length(key, set, cost)
  local at = #numbers + 1
  for part = 1, #set do append(key, set[part], cost, cost, ENFORCE) end
  say(-1)
  take(at, #set, '')
end

-- The long way of a take of a lease: a give of what it tells, and a take. Returns where the next request begins.
local function leased_at_length(first)
  local key, set, low = numbers[first + 1], sets[numbers[first + 2]], numbers[first + 3]
  local at, gives, i = #numbers + 1, 0, first + 4
  for part = 1, #set do
    local own = numbers[i + 2]
    i = i + 3
    for _ = 1, own do
      append(key, set[part], numbers[i], numbers[i + 1], numbers[i + 2])
      gives, i = gives + 1, i + 3
    end
  end
  say(-1)
  give(at, gives, '')
  at, i = #numbers + 1, first + 4
  for part = 1, #set do
    append(key, set[part], low, numbers[i], numbers[i + 1])
    i = i + 3 + 3 * numbers[i + 2]
  end
  take(at, #set, '')
  return i
end

-- The long way of a plain give.
local function give_at_length(first, next_at)
  local at = #numbers + 1
  append(numbers[first + 1], sets[numbers[first + 2]][1], numbers[first + 3], numbers[first + 4], numbers[first + 5])
  give(at, 1, '')
  return next_at
end

-- By number, as in the batch; the others by name.
local VERBS = {
  [0] = take,
  peek,
  give,
  reset,
  [5] = take_repeating,
  [8] = give_once,
  plain = take_at_length,
  leased = leased_at_length,
  given = give_at_length,
  store_lists = store_lists,
  store_marks = store_marks,
}
