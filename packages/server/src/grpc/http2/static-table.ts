// The static table of HPACK (RFC 7541, appendix A): names and values of the indexes 1 to 61.

const ENTRIES = `:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate`.split('\n')

/** Index 0 is unused. */
export const STATIC_NAMES: readonly string[] = ['', ...ENTRIES.map((entry) => entry.split(' ')[0] as string)]
export const STATIC_VALUES: readonly string[] = ['', ...ENTRIES.map((entry) => entry.replace(/^\S+ ?/, ''))]
export const STATIC_LENGTH: number = ENTRIES.length
