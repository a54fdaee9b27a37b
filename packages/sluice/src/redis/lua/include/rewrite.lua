--[[
  Writes whole values with their TTL: when buckets were added, or changed for the first time in a TTL period.
]]
local ttl = make_ttl(now_us, ttl_period)
local latest_end_us, retention_us, ttl_seconds, ends_us = ttl[1], ttl[2], ttl[3], ttl[4]

-- Writes a value with a TTL in whole seconds, so that few different numbers are formatted.
local function write(key, text, ends)
  call('SETEX', key, digits(ttl_seconds(ends)), text)
end

-- Drops buckets that have been full again for longer than their retention.
local function rewrite_value(key, layout)
  local base, kept, kept_layouts, kept_states, latest = bases[key], 0, {}, {}, 0
  for index = 1, layout[COUNT] do
    local shape = layout[SHAPES][index]
    local n, at, x = numbers_of(shape), states[base + 3 * index - 2], states[base + 3 * index - 1]
    local kept_us = retention_us(layout[NAMES][index])
    local code, tick, a, b = n[CODE], n[TICK], n[A], n[B]
    if ends_us(code, tick, a, b, at, x) + kept_us >= now_us then
      kept = kept + 1
      kept_layouts[kept] = bucket_text(layout[NAMES][index], shape)
      kept_states[kept] = states_text(base, index, index)
      latest = max(latest, latest_end_us(code, n[CAPACITY], tick, a, b, at, x) + kept_us - SLACK_US)
    end
  end
  if kept == 0 then return call('DEL', keys[key]) end
  local text = kept == layout[COUNT] and layout[TEXT] or table.concat(kept_layouts)
  text = pack(LAYOUT, #text, text) .. table.concat(kept_states)
  if ttl_due[key] then write(keys[key], text, latest) else call('SET', keys[key], text, 'KEEPTTL') end
end
