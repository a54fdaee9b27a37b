--[[
  Short call: one take, plain or of a lease. Decides it without the tables and functions of a batch, whose
  creation costs several times as much as the take itself. Falls back to the batch, before anything is written, if
  buckets are missing or were written under another limit, the value is unreadable, a state is ahead of a clock that
  stepped back, a plain take finds units on lease, or a value has to be written as a whole with buckets that the take
  does not change.

  Not a function, because each upvalue of a function costs about as much as the arithmetic.
]]
local text, count = raw[1], math.floor((#ARGV - 1) / 2)
local layout = ARGV[2]
for i = 2, count do layout = layout .. ARGV[2 * i] end
local head = struct.pack(LAYOUT, #layout, layout)
-- Offsets of the states in a value with further buckets.
local offsets
if text and (#text ~= #head + STATE_BYTES * count or string.sub(text, 1, #head) ~= head) then
--- @include "states_among"
  local is_readable
  is_readable, offsets = pcall(states_among, text, count)
  if not is_readable or not offsets then break end
end

local reply, states_text, renews, is_decided = { now_us }, '', not text, true
if cost then
  local is_refused = false
  for i = 1, count do
    local capacity, tick, step, b = string.match(ARGV[2 * i + 1], LIMIT_PATTERN)
    capacity, tick, step, b = capacity + 0, tick + 0, step + 0, b + 0
    local now, at, x, y, is_short = math.floor(now_us / tick), 0, 0, 0
    if text then at, x, y = struct.unpack(STATE, text, offsets and offsets[i] or #head + STATE_BYTES * (i - 1) + 1) end
    is_decided = is_decided and at <= now and y == 0
    x, is_short = charged_plain(capacity, step, b, now, at, x, cost)
    reply[i + 1], is_refused = x, is_refused or is_short
    if at < (b > 0 and now - now % ttl_period(capacity, tick, step, b) or now) then renews = true end
    states_text = states_text .. struct.pack(STATE, now, x, 0)
  end
  if is_decided and is_refused then
--- @include "refusal"
    return refusal(reply, cost, count)
  end
else
--- @include "single_leased"
end
if not is_decided then break end

if offsets then
  if renews then break end
  for i = 1, count do
    call('SETRANGE', KEYS[1], offsets[i] - 1, string.sub(states_text, STATE_BYTES * (i - 1) + 1, STATE_BYTES * i))
  end
elseif renews then
--- @include "whole_value"
  call('SETEX', KEYS[1], whole_value_ttl(states_text, count), head .. states_text)
else
  call('SETRANGE', KEYS[1], #head, states_text)
end
return reply
