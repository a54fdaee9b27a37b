--- The action `lua.sluice <url> open|closed` of HAProxy 2.6 and newer: asks Sluice about the request.
--- Sets txn.sluice.verdict to allowed, refused, invalid, untrusted or down, and one variable per header of the answer.

local TIMEOUT_MS = 1000
--- HAProxy tries for seconds to reach a server that is away, so one that was not reached is left alone for a while.
local LEFT_ALONE_S = 2
local left_alone_until = 0

local ANSWERS = { 'retry-after', 'ratelimit', 'ratelimit-policy' }
for _, name in ipairs({ 'limit', 'remaining', 'reset' }) do
  table.insert(ANSWERS, 'x-ratelimit-' .. name)
end

--- What this action says itself, and what concerns the connection of the client only.
local NOT_PASSED_ON = {}
for _, name in ipairs({
  'x-original-uri', 'x-original-url', 'x-original-method', 'x-forwarded-uri', 'x-forwarded-method', 'x-forwarded-for',
  'forwarded', 'host', 'connection', 'content-length', 'transfer-encoding', 'expect', 'upgrade', 'te',
}) do
  NOT_PASSED_ON[name] = true
end

--- HAProxy counts the values of a header from 0, its HTTP client from 1.
local function headers_for_sluice(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not NOT_PASSED_ON[name] then
      headers[name] = {}
      for _, value in pairs(values) do table.insert(headers[name], value) end
    end
  end
  headers['x-forwarded-uri'] = { txn.sf:pathq() }
  headers['x-forwarded-method'] = { txn.sf:method() }
  headers['x-forwarded-for'] = { txn.sf:src() }
  return headers
end

--- Sluice answers, but --trusted-proxies lacks the address of this HAProxy. Requests that passed would have no limits;
--- the log of Sluice says what to do.
local function is_untrusted(response)
  local values = response and response.headers and response.headers['sluice-problem']
  return values ~= nil and (values[0] or values[1]) == 'PEER_UNTRUSTED'
end

local function verdict_of(response, on_fail)
  if is_untrusted(response) then return 'untrusted' end
  local status = response and response.status or 0
  if status >= 200 and status < 300 then return 'allowed' end
  if status == 429 then return 'refused' end
  if status >= 400 and status < 500 then return 'invalid' end
  return on_fail == 'open' and 'allowed' or 'down'
end

local function ask(txn, url)
  if core.now().sec < left_alone_until then return nil end
  local response = core.httpclient():get({
    url = url .. '/api/v1/rate-limit/auth',
    headers = headers_for_sluice(txn),
    timeout = TIMEOUT_MS,
  })
  if not response or response.status == 0 or (response.status >= 500 and not is_untrusted(response)) then
    left_alone_until = core.now().sec + LEFT_ALONE_S
  end
  return response
end

core.register_action('sluice', { 'http-req' }, function(txn, url, on_fail)
  local response = ask(txn, url)
  txn:set_var('txn.sluice.verdict', verdict_of(response, on_fail))
  for _, name in ipairs(ANSWERS) do
    local values = response and response.headers and response.headers[name]
    local value = values and (values[0] or values[1])
    if value then txn:set_var('txn.sluice.' .. name:gsub('-', '_'), value) end
  end
end, 2)
