// Common and Combined Log Format, also with the virtual host in front. All patterns are linear in the length of a line.

import { canonicalAddress } from '../../canonical/address.ts'
import type { RecordedCheck } from '../recorded-request.ts'
import { clfTimeUs } from './log-time.ts'

const QUOTED = '"((?:[^"\\\\]|\\\\.)*)"'
const CLIENT = '(?:\\S+:\\d+ )?(\\S+) \\S+ (.{1,1024}?) \\[([^\\]]{20,40})\\]'
const LINE = new RegExp(`^${CLIENT} ${QUOTED} (\\d{3}) (?:\\d+|-)(?: ${QUOTED} ${QUOTED})?(?: .*)?$`)
const REQUEST = /^([A-Za-z]{1,32}) (\S+)(?: HTTP\/\d(?:\.\d)?)?$/
const TOO_MANY_REQUESTS = '429'

/** A request, or the reason that the line is malformed. */
export type ReadLine = RecordedCheck | string

/** The same second is on many lines. */
let lastText = ''
let lastUs: number | undefined

export function readClfLine(line: string, needsCombined: boolean | undefined): ReadLine {
  const parts = LINE.exec(line)
  if (parts === null) return 'not in Common or Combined Log Format'
  const [, host = '', user = '', time = '', request = '', status, referer, agent] = parts
  if (needsCombined === true && agent === undefined) return 'no referer and user agent, as in Combined Log Format'
  if (time !== lastText) {
    lastText = time
    lastUs = clfTimeUs(time)
  }
  if (lastUs === undefined) return 'the time cannot be read'
  if (canonicalAddress(host) === undefined) return 'the client is not an address'
  const [, method, target = ''] = REQUEST.exec(unescaped(request)) ?? []
  if (method === undefined) return 'the request cannot be read'
  const attributes = headers(referer, agent)
  return {
    kind: 'check',
    atUs: lastUs,
    subject: {
      ip: host,
      ...(user === '-' || user === '' ? {} : { user }),
      method,
      path: pathOf(target),
      ...(attributes === undefined ? {} : { attributes }),
    },
    allowed: status !== TOO_MANY_REQUESTS,
  }
}

/** Path of a request target, which may be a complete URL or `*`. */
export function pathOf(target: string): string {
  if (target.startsWith('/')) return target
  const path = /^[A-Za-z][\w+.-]{0,20}:\/\/[^/]*(\/.*)?$/.exec(target)
  return path === null ? `/${target}` : (path[1] ?? '/')
}

function headers(referer: string | undefined, agent: string | undefined): Record<string, string> | undefined {
  const found: Record<string, string> = {}
  if (referer !== undefined && referer !== '-') found['header.referer'] = unescaped(referer)
  if (agent !== undefined && agent !== '-') found['header.user-agent'] = unescaped(agent)
  return Object.keys(found).length === 0 ? undefined : found
}

/** Apache writes `\"`, `\\` and `\xHH`; nginx `\xHH`. */
function unescaped(text: string): string {
  if (!text.includes('\\')) return text
  return text.replace(/\\(?:x([\dA-Fa-f]{2})|(.))/g, (_, hex: string | undefined, other: string) =>
    hex === undefined ? other : String.fromCharCode(Number.parseInt(hex, 16)),
  )
}
