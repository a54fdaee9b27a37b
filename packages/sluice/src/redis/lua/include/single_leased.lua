-- Decides a lone lease take, within include/single.lua: as take_leased of include/leased.lua does. If an item is
-- refused, the second round charges nothing, and applies only the gives.
local _, _, _, advanced_to, given_back, units_of_item, charged_item = make_items(now_us, position)
local changed
for round = 1, 2 do
  local all = true
  states_text, changed = '', 0
  for i = 1, count do
    local capacity, tick, step, b, hold, low, high, kind, gives = string.match(ARGV[2 * i + 1], LEASED_PATTERN)
    capacity, tick, step, b, hold = capacity + 0, tick + 0, step + 0, b + 0, hold + 0
    low, high, kind = low + 0, high + 0, kind + 0
    local code, at, x, y, units, granted, has_gives = b > 0 and TOKEN or FIXED, 0, 0, 0
    local now = math.floor(now_us / tick)
    if text then at, x, y = struct.unpack(STATE, text, offsets and offsets[i] or #head + STATE_BYTES * (i - 1) + 1) end
    if at > now or low > capacity then
      is_decided = false
      break
    end
    local old_x, old_y = x, y
    x, y = advanced_to(now, code, step, b, hold, at, x, y)
    if gives ~= '' then
      local numbers = {}
      for number in string.gmatch(gives, '%d+') do numbers[#numbers + 1] = number + 0 end
      x, y, has_gives = given_back(code, tick, step, b, hold, now, x, y, numbers, 1, #numbers)
    end
    granted, units = units_of_item(code, capacity, tick, step, hold, now, x, y, low, high, kind)
    all = all and granted
    if round == 2 then units = 0 end
    if units > 0 then x, y = charged_item(code, step, hold, x, y, units, low, kind) end
    reply[3 * i], reply[3 * i + 1], reply[3 * i + 2] = units, x, y
    if units > 0 or has_gives then
      changed = changed + 1
      if at < (b > 0 and now - now % ttl_period(capacity, tick, step, b) or now) then renews = true end
      states_text = states_text .. struct.pack(STATE, now, x, y)
    else
      states_text = states_text .. struct.pack(STATE, at, old_x, old_y)
    end
  end
  reply[2] = round == 1 and 1 or 0
  if all then break end
end
if is_decided and changed == 0 then return reply end
if renews and changed < count then break end
