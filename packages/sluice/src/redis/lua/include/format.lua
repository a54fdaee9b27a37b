--[[
  Format of packed values. A packed value is the length of its layout, the layout (names and shapes of its buckets), and
  their states in that order. `index` is the position of a bucket in its layout.
]]
-- Equals BUCKETS_MAX of wire.ts.
local BUCKETS_MAX = 1024
local LAYOUT = '<I3c0'
-- A bucket in a layout: its name and the shape of the limit that wrote it, each after its length.
local BUCKET = '<Hc0Bc0'
-- at and x take 7 bytes, y takes 4. The size is fixed, so that a state can be overwritten in place.
local STATE, STATE_BYTES = '<I7I7I4', 18

-- Numbers of a limit in the arguments of a call with one take: capacity, tick_us, subunits per unit and per tick.
local LIMIT_PATTERN = '^(%d+) (%d+) (%d+) (%d+)'
-- Numbers of a limit in a call with one lease take: the same, then hold, min, max, kind, and the gives.
local LEASED_PATTERN = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)(.*)$'
