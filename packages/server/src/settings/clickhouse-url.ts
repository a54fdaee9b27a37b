// URL of a ClickHouse server: `http(s)://[user:password@]host[:8123][/database]`.

export type ClickHouseUrl = {
  /** Without user and password; safe to print. */
  readonly origin: string
  readonly user: string
  readonly password: string
  readonly database: string
}

export const CLICKHOUSE_URL_FIX: string =
  'give a URL such as http://127.0.0.1:8123 or https://user:password@host:8443/database (default database: sluice)'

const PORT = 8123
const DATABASE = 'sluice'
/** A name that needs no quotes in SQL. */
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/

/** Undefined for an invalid URL. */
export function readClickHouseUrl(text: string): ClickHouseUrl | undefined {
  if (!/^https?:\/\/[^/]/.test(text) || /\s/.test(text) || !URL.canParse(text)) return undefined
  const url = new URL(text)
  const database = url.pathname.slice(1) || DATABASE
  if (url.search !== '' || url.hash !== '' || !NAME.test(database)) return undefined
  const user = decode(url.username)
  const password = decode(url.password)
  if (user === undefined || password === undefined) return undefined
  return { origin: `${url.protocol}//${url.hostname}:${portOf(text, url)}`, user, password, database }
}

/** `URL` drops the port if it is the default one of the protocol, as in `https://host:443`. */
function portOf(text: string, { port, protocol }: URL): number {
  if (port !== '') return Number(port)
  const isGiven = /^https?:\/\/(?:[^/]*@)?(?:\[[^\]]*\]|[^/:@]*):\d+(?:\/|$)/.test(text)
  if (!isGiven) return PORT
  return protocol === 'https:' ? 443 : 80
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}
