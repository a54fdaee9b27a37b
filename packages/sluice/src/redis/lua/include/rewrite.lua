--[[
  Writes whole values with their TTL: when buckets were added, or changed for the first time in a TTL period.
]]
-- The TTL only reclaims memory: the state itself says when it is full again. The slack keeps a value alive after that,
-- because a clock that steps back would otherwise find no value, and treat a spent bucket as full. It is longer than
-- any lease (lease-terms.ts).
local SLACK_US = 60000000

-- Returns when a stored state is full again, and so equivalent to no state.
local function ends_us(code, tick, a, b, at, x)
  if code <= LEAKY then return (at + ceil(x / b)) * tick end
  return (at + (code == SLIDING and 2 or 1)) * a * tick
end

-- Writes a value with a TTL in whole seconds, so that few different numbers are formatted.
local function write(key, text, ends)
  call('SETEX', key, digits(max(1, ceil((ends - now_us + SLACK_US) / 1000000))), text)
end

-- Returns when a state ends, and the latest time it can end: if its bucket is emptied at the end of its TTL period.
local function end_and_latest_end(shape, r)
  local n = numbers_of(shape)
  local code, at, x = n[CODE], states[r], states[r + 1]
  local ends = ends_us(code, n[TICK], n[A], n[B], at, x)
  if code > LEAKY then return ends, ends end
  return ends, ends_us(code, n[TICK], n[A], n[B], at + ttl_period(n), max(x, n[CAPACITY] * n[A]))
end

-- Drops buckets that have been full again for longer than the slack.
local function rewrite_value(index, layout)
  local base, kept, kept_layouts, kept_states, latest = bases[index], 0, {}, {}, 0
  for seat = 1, layout[COUNT] do
    local shape = layout[SHAPES][seat]
    local ends, latest_end = end_and_latest_end(shape, base + 3 * seat - 2)
    if ends + SLACK_US >= now_us then
      kept = kept + 1
      kept_layouts[kept] = bucket_text(layout[NAMES][seat], shape)
      kept_states[kept] = states_text(base, seat, seat)
      latest = max(latest, latest_end)
    end
  end
  if kept == 0 then return call('DEL', keys[index]) end
  local text = kept == layout[COUNT] and layout[TEXT] or table.concat(kept_layouts)
  text = pack(LAYOUT, #text, text) .. table.concat(kept_states)
  if ttl_due[index] then write(keys[index], text, latest) else call('SET', keys[index], text, 'KEEPTTL') end
end
