// Parses `etcd://user:password@host:2379/prefix`. Rejects ambiguous prefixes, such as `..` or escaped bytes.

export type EtcdAddress = {
  /** Base URLs of the members, tried in order. */
  readonly endpoints: readonly string[]
  /** Prefix of the keys that hold rules: `/sluice/rules/`. */
  readonly prefix: string
  readonly login: { readonly name: string; readonly password: string } | undefined
}

const ETCD_URL = /^(etcds?):\/\/(?:([^@/]*)@)?([^@/]*)(\/.*)?$/s
const HOST = /^(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?$/
const SEGMENT = /^[A-Za-z0-9._-]+$/
const PORT = 2379
const HOSTS_MAX = 16
const PREFIX_LENGTH_MAX = 255
const EXAMPLE = 'etcd://127.0.0.1:2379/sluice/rules'

export function isEtcdUrl(text: string): boolean {
  return /^etcds?:/.test(text)
}

/** Returns the address, or the fix for an invalid URL. Never repeats a password. */
export function parseEtcdUrl(text: string): EtcdAddress | string {
  const [, scheme, login, authority = '', path = ''] = ETCD_URL.exec(text) ?? []
  if (scheme === undefined) return `give a URL such as ${EXAMPLE}`
  const hosts = authority.split(',')
  if (!hosts.every((host) => HOST.test(host)))
    return `give hosts with optional ports, separated by commas, as in ${EXAMPLE}`
  if (hosts.length > HOSTS_MAX) return `give at most ${HOSTS_MAX} hosts`
  const fix = prefixFix(path)
  if (fix !== undefined) return fix
  const known = login === undefined ? undefined : readLogin(login)
  if (login !== undefined && known === undefined)
    return 'give user:password before the @, with special characters percent-encoded'
  const protocol = scheme === 'etcds' ? 'https' : 'http'
  const endpoints = hosts.map((host) => `${protocol}://${/:\d+$/.test(host) ? host : `${host}:${PORT}`}`)
  return { endpoints, prefix: `${path}/`, login: known }
}

function prefixFix(path: string): string | undefined {
  const segments = path.split('/').slice(1)
  if (segments.length === 0 || path === '/') return `add the prefix of the keys after the host, as in ${EXAMPLE}`
  if (path.length > PREFIX_LENGTH_MAX) return `give a prefix of at most ${PREFIX_LENGTH_MAX} characters`
  if (segments.some((segment) => segment === '.' || segment === '..'))
    return 'the prefix may not have "." or ".." between its slashes: write the resulting path'
  if (!segments.every((segment) => SEGMENT.test(segment)))
    return 'the prefix may have letters, digits, ".", "_" and "-" between single slashes, and no slash at its end'
  return undefined
}

function readLogin(text: string): EtcdAddress['login'] {
  const colon = text.indexOf(':')
  try {
    const name = decodeURIComponent(text.slice(0, colon))
    const password = decodeURIComponent(text.slice(colon + 1))
    return colon > 0 && password !== '' ? { name, password } : undefined
  } catch {
    return undefined
  }
}
