--[[
  Reports which keys exist.

  KEYS     any
  returns  per key: 1 if it exists, else 0
]]
local found = {}
for i = 1, #KEYS do found[i] = redis.call('EXISTS', KEYS[i]) end
return found
