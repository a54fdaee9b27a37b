// Facts of a descriptor in native mode: its entries become facts of the subject, or attributes under their own key. The
// domain is the attribute `domain`. docs/guides/envoy.md has the table.

import type { Subject } from 'sluice'
import { parseAddress } from 'sluice/http'
import type { Entry } from './rate-limit-request.ts'

/**
 * `cost`: undefined for a peek. If a key occurs twice, the last value applies. A switch and one literal, because a
 * table of keys and a spread are slow: docs/decisions/0018-v8-hints.md.
 */
export function nativeSubject(domain: string, entries: readonly Entry[], cost: number | undefined): Subject {
  let ip: string | undefined
  let user: string | undefined
  let apiKey: string | undefined
  let tenant: string | undefined
  let plan: string | undefined
  let method: string | undefined
  let path: string | undefined
  const attributes: Record<string, string> = { domain }
  for (let index = 0; index < entries.length; index += 1) {
    const { key, value } = entries[index] as Entry // in range
    const fact = value === '' ? undefined : value
    switch (key) {
      case 'user':
      case 'user_id':
      case 'client_id':
        user = fact
        break
      case 'api_key':
        apiKey = fact
        break
      case 'remote_address':
      case 'ip':
        // A masked address (203.0.113.0/24) is not an address.
        if (parseAddress(value) === undefined) attributes[key] = value
        else ip = value
        break
      case 'tenant':
      case 'tenant_id':
        tenant = fact
        break
      case 'plan':
        plan = fact
        break
      case 'path':
      case ':path':
        path = fact
        break
      case 'method':
      case ':method':
        method = fact
        break
      default:
        setOwn(attributes, key, value)
    }
  }
  return { ip, user, apiKey, tenant, plan, method, path, cost, attributes }
}

/** `__proto__` is a key like any other. */
function setOwn(attributes: Record<string, string>, key: string, value: string): void {
  if (key === '__proto__') Object.defineProperty(attributes, key, { value, enumerable: true, configurable: true })
  else attributes[key] = value
}
