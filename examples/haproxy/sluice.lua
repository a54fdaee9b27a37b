--- The action `lua.sluice <url> open|closed` for HAProxy 2.6 and newer: checks the request with Sluice.
--- Sets txn.sluice.result to allowed, refused, banned, invalid, untrusted or down, txn.sluice.body to the problem
--- document of a refusal, and one variable per header of a limit.

--- HAProxy repeats a request that has no answer by then, and each is counted: `httpclient.retries 0` (HAProxy 2.8 and
--- newer, section `global`) prevents that.
local TIMEOUT_MS = 1000
--- Circuit breaker: HAProxy retries an unreachable server for seconds, so a failure stops requests for a while.
local BREAKER_OPEN_S = 2
local breaker_open_until = 0

local RESPONSE_HEADERS = { 'retry-after', 'ratelimit', 'ratelimit-policy' }
for _, name in ipairs({ 'limit', 'remaining', 'reset' }) do
  table.insert(RESPONSE_HEADERS, 'x-ratelimit-' .. name)
end

--- Headers that this action sets itself, and headers of the client's connection.
local NOT_FORWARDED = {}
for _, name in ipairs({
  'x-original-uri', 'x-original-url', 'x-original-method', 'x-forwarded-uri', 'x-forwarded-method', 'x-forwarded-for',
  'forwarded', 'host', 'connection', 'content-length', 'transfer-encoding', 'expect', 'upgrade', 'te',
}) do
  NOT_FORWARDED[name] = true
end

--- HAProxy indexes the values of a header from 0, its HTTP client from 1.
local function headers_for_sluice(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not NOT_FORWARDED[name] then
      headers[name] = {}
      for _, value in pairs(values) do table.insert(headers[name], value) end
    end
  end
  headers['x-forwarded-uri'] = { txn.sf:pathq() }
  headers['x-forwarded-method'] = { txn.sf:method() }
  headers['x-forwarded-for'] = { txn.sf:src() }
  headers['accept'] = { 'application/problem+json' }
  return headers
end

--- Sluice replied, but --trusted-proxies lacks the address of this HAProxy. Not a reason to fail open: no request would
--- be limited. The log of Sluice names the fix.
local function is_untrusted(response)
  local values = response and response.headers and response.headers['sluice-problem']
  return values ~= nil and (values[0] or values[1]) == 'PEER_UNTRUSTED'
end

local function result_of(response, on_fail)
  if is_untrusted(response) then return 'untrusted' end
  local status = response and response.status or 0
  if status >= 200 and status < 300 then return 'allowed' end
  if status == 429 then return 'refused' end
  if status == 403 then return 'banned' end
  if status >= 400 and status < 500 then return 'invalid' end
  return on_fail == 'open' and 'allowed' or 'down'
end

local function check(txn, url)
  if core.now().sec < breaker_open_until then return nil end
  local response = core.httpclient():get({
    url = url .. '/api/v1/rate-limit/auth',
    headers = headers_for_sluice(txn),
    timeout = TIMEOUT_MS,
  })
  if not response or response.status == 0 or (response.status >= 500 and not is_untrusted(response)) then
    breaker_open_until = core.now().sec + BREAKER_OPEN_S
  end
  return response
end

core.register_action('sluice', { 'http-req' }, function(txn, url, on_fail)
  local response = check(txn, url)
  txn:set_var('txn.sluice.result', result_of(response, on_fail))
  if response and response.body then txn:set_var('txn.sluice.body', response.body) end
  for _, name in ipairs(RESPONSE_HEADERS) do
    local values = response and response.headers and response.headers[name]
    local value = values and (values[0] or values[1])
    if value then txn:set_var('txn.sluice.' .. name:gsub('-', '_'), value) end
  end
end, 2)
