// URL of a single Redis server, of a Cluster (`redis+cluster://h1:p,h2:p`) or of a primary behind Sentinel
// (`redis+sentinel://h1:p,h2:p/mymaster`). `rediss` is the same over TLS; user and password are those of the ACL.

/** Options of an ioredis client besides the addresses. */
type Access = { username?: string; password?: string; tls?: object; name?: string; db?: number }
type Address = { readonly host: string; readonly port: number }

export type RedisUrl =
  | { readonly kind: 'single'; readonly url: string }
  | { readonly kind: 'cluster'; readonly nodes: readonly Address[]; readonly access: Access }
  | { readonly kind: 'sentinel'; readonly nodes: readonly Address[]; readonly access: Access }

export const REDIS_URL_FIX: string =
  'give a URL such as redis://127.0.0.1:6379, rediss://user:password@host:6380/0, ' +
  'redis+cluster://host:6379,host:6380 or redis+sentinel://host:26379,host:26380/mymaster'

const SCHEME = '(?<tls>rediss?)\\+(?<kind>cluster|sentinel)'
const ACCESS = '(?:(?<user>[^:@/]*)(?::(?<password>[^@/]*))?@)?'
const SEVERAL = new RegExp(`^${SCHEME}://${ACCESS}(?<hosts>[^/@]+)/?(?<rest>[^?#]*)$`)
const ADDRESS = /^(?<host>\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::(?<port>\d{1,5}))?$/
const DEFAULT_PORTS = { cluster: 6379, sentinel: 26_379 } as const

export function isRedisUrl(text: string): boolean {
  return readRedisUrl(text) !== undefined
}

export function isClusterUrl(text: string): boolean {
  return readRedisUrl(text)?.kind === 'cluster'
}

/** Undefined for an invalid URL. */
export function readRedisUrl(text: string): RedisUrl | undefined {
  if (/^rediss?:\/\//.test(text)) return isSingle(text) ? { kind: 'single', url: text } : undefined
  const found = SEVERAL.exec(text)?.groups
  const kind = found?.kind === 'cluster' || found?.kind === 'sentinel' ? found.kind : undefined
  if (found === undefined || kind === undefined) return undefined
  const nodes = (found.hosts ?? '').split(',').map((one) => readAddress(one, DEFAULT_PORTS[kind]))
  const rest = readRest(kind, found.rest ?? '')
  if (rest === undefined || !nodes.every((node) => node !== undefined)) return undefined
  const username = decode(found.user)
  const password = decode(found.password)
  const access: Access = {
    ...(username === '' ? {} : { username }),
    ...(password === '' ? {} : { password }),
    ...(found.tls === 'rediss' ? { tls: {} } : {}),
    ...rest,
  }
  return { kind, nodes, access }
}

/** One host, and a database number. */
function isSingle(text: string): boolean {
  if (/\s/.test(text) || !URL.canParse(text)) return false
  const { host, pathname } = new URL(text)
  return readAddress(host, DEFAULT_PORTS.cluster) !== undefined && /^\/?\d{0,4}$/.test(pathname)
}

/** Sentinel: name of the primary, and an optional database. Cluster: neither. */
function readRest(kind: 'cluster' | 'sentinel', rest: string): Access | undefined {
  if (kind === 'cluster') return rest === '' ? {} : undefined
  const [name = '', database = '0', ...more] = rest.split('/')
  if (!/^[\w.-]+$/.test(name) || !/^\d{1,4}$/.test(database) || more.length > 0) return undefined
  return { name, db: Number(database) }
}

function readAddress(text: string, defaultPort: number): Address | undefined {
  const found = ADDRESS.exec(text)?.groups
  const port = Number(found?.port ?? defaultPort)
  if (found?.host === undefined || port < 1 || port > 65_535) return undefined
  return { host: found.host.replace(/^\[|\]$/g, ''), port }
}

function decode(text: string | undefined): string {
  try {
    return decodeURIComponent(text ?? '')
  } catch {
    return text ?? ''
  }
}
