-- Returns the offsets of the states of the limits in a value with further buckets. Nil if a bucket is missing or was
-- written under another limit. Throws if the value is malformed.
local function states_among(text, count)
  local offsets, bucket_count, found = {}, 0, 0
  local bytes, rest = struct.unpack('<I3', text)
  local first = rest + bytes
  while rest < first do
    local start, _ = rest
    _, _, rest = struct.unpack(BUCKET, text, rest)
    local bucket = string.sub(text, start, rest - 1)
    for i = 1, count do
      if ARGV[2 * i] == bucket then found, offsets[i] = found + 1, first + STATE_BYTES * bucket_count end
    end
    bucket_count = bucket_count + 1
  end
  if #text ~= first - 1 + STATE_BYTES * bucket_count then return nil end
  return found == count and offsets or nil
end
