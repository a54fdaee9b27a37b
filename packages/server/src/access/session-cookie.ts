// The cookie that carries a session: not readable by scripts, not sent with requests of other sites. Over TLS, with the
// prefix that binds it to this host.

import type { IncomingHttpHeaders } from 'node:http'

const NAME = 'sluice_session'
const SECURE_NAME = `__Host-${NAME}`
const ATTRIBUTES = 'Path=/; HttpOnly; SameSite=Strict'

/** Value of the first session cookie; undefined if there is none. */
export function sessionCookieOf({ cookie }: IncomingHttpHeaders): string | undefined {
  if (cookie === undefined) return undefined
  const pairs = cookie.split(';').map((pair) => pair.trim())
  for (const name of [SECURE_NAME, NAME]) {
    const found = pairs.find((pair) => pair.startsWith(`${name}=`))
    if (found !== undefined) return found.slice(name.length + 1)
  }
  return undefined
}

/** Set-Cookie headers for a session of this length. `maxAgeSeconds` 0 deletes the cookie. */
export function setSessionCookie(value: string, maxAgeSeconds: number, isSecure: boolean): string[] {
  const secure = `${SECURE_NAME}=${value}; ${ATTRIBUTES}; Max-Age=${maxAgeSeconds}; Secure`
  const plain = `${NAME}=${value}; ${ATTRIBUTES}; Max-Age=${maxAgeSeconds}`
  if (maxAgeSeconds === 0) return [secure, plain]
  return [isSecure ? secure : plain]
}
