--[[
  Writing values whole, with their time to live: where buckets are new, or in use in another period.
]]
-- TTL only reclaims memory: buckets say themselves when they stop mattering. The slack keeps a clock that steps (or a
-- test that moves it) from finding a full bucket where a spent one was. It is longer than any lease: lease-terms.ts.
local SLACK_US = 60000000

-- When a state, as it was stored, ceases to matter.
local function ends_us(code, tick, a, b, at, x)
  if code <= LEAKY then return (at + ceil(x / b)) * tick end
  return (at + (code == SLIDING and 2 or 1)) * a * tick
end

-- In whole seconds, so that there are few.
local function write(key, text, ends)
  call('SETEX', key, digits(max(1, ceil((ends - now_us + SLACK_US) / 1000000))), text)
end

-- A bucket may be emptied at any time of its period, so its TTL is that of one that is emptied at the end of it.
local function ends_and_lasts(shape, r)
  local n = numbers_of(shape)
  local code, at, x = n[CODE], states[r], states[r + 1]
  local ends = ends_us(code, n[TICK], n[A], n[B], at, x)
  if code > LEAKY then return ends, ends end
  return ends, ends_us(code, n[TICK], n[A], n[B], at + ttl_period(n), max(x, n[CAPACITY] * n[A]))
end

-- Buckets that have not mattered for a while are left out when a value is written whole.
local function store_whole(index, layout)
  local base, kept, kept_layouts, kept_states, latest = bases[index], 0, {}, {}, 0
  for seat = 1, layout[COUNT] do
    local shape = layout[SHAPES][seat]
    local ends, lasts = ends_and_lasts(shape, base + 3 * seat - 2)
    if ends + SLACK_US >= now_us then
      kept = kept + 1
      kept_layouts[kept] = bucket_text(layout[NAMES][seat], shape)
      kept_states[kept] = states_text(base, seat, seat)
      latest = max(latest, lasts)
    end
  end
  if kept == 0 then return call('DEL', keys[index]) end
  local text = kept == layout[COUNT] and layout[TEXT] or table.concat(kept_layouts)
  text = pack(LAYOUT, #text, text) .. table.concat(kept_states)
  if aged[index] then write(keys[index], text, latest) else call('SET', keys[index], text, 'KEEPTTL') end
end
