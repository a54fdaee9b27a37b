// The one error class of the library and its closed set of codes. A refusal is never an error: it is a Decision.

/** code → what to do about it. docs/reference/errors.md has one heading per code; a test keeps the two equal. */
export const ERRORS = {
  OPTION_INVALID: 'Fix the option named in the message.',
  RULE_INVALID: 'Fix the rule named in the message; the rules in force stay as they are.',
  SUBJECT_INVALID: 'Fix the fact of the request named in the message.',
  STORE_UNAVAILABLE: 'The store did not answer: look at Redis and the network between.',
  STORE_FULL: 'Redis is out of memory: raise maxmemory.',
  STORE_CORRUPT: 'A stored value cannot be read: reset the bucket or delete the key named in the message.',
  STORE_CROWDED:
    'One owner has more buckets than one value holds: give fewer rules the same first fact, or a composite scope.',
  CLOSED: 'The limiter or store was closed: create a new one.',
} as const

export type ErrorCode = keyof typeof ERRORS

/** What exactly is wrong with one input: tools print these, people read the message. */
export type Fault = {
  readonly field: string
  readonly value: unknown
  readonly fix: string
  /** `value` is a description: the value itself may be a secret. */
  readonly withheld?: true
}

/** For frameworks that read it from an error: the caller's fault, or the store's. */
const STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  SUBJECT_INVALID: 400,
  STORE_UNAVAILABLE: 503,
  STORE_FULL: 503,
  STORE_CORRUPT: 503,
  STORE_CROWDED: 503,
}

export class LimiterError extends Error {
  override readonly name = 'LimiterError'
  readonly code: ErrorCode
  /** The HTTP status that fits: Express and others answer with it. */
  readonly status: number
  /** One per mistake, for bad input; empty for every other code. */
  readonly faults: readonly Fault[]

  constructor(code: ErrorCode, message: string, options: { cause?: unknown; faults?: readonly Fault[] } = {}) {
    super(`[${code}] ${message}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.status = STATUS[code] ?? 500
    this.faults = options.faults ?? []
  }
}

/** Bad input of the program that uses the library. */
export function optionInvalid(field: string, value: unknown, fix: string): LimiterError {
  return optionsInvalid([{ field, value, fix }])
}

export function optionsInvalid(given: readonly Fault[]): LimiterError {
  const faults = given.map(({ field, value, fix }) => guarded(field, value, fix))
  return new LimiterError('OPTION_INVALID', faults.map(faultText).join('; '), { faults })
}

/** A bad fact of a request. */
export function subjectInvalid(field: string, value: unknown, fix: string): LimiterError {
  const fault = guarded(field, value, fix)
  return new LimiterError('SUBJECT_INVALID', faultText(fault), { faults: [fault] })
}

/**
 * Options and facts whose texts are never secret. Texts of all others are withheld from errors: they may be passwords
 * in a URL, API keys or header values, and errors end up in logs.
 */
const PRINTED: ReadonlySet<string> = new Set([
  ...['limit', 'window', 'algorithm', 'burst', 'name', 'ipv6Prefix', 'trustProxy', 'proxyHeader', 'refund'],
  ...['headers.style', 'headers.retryAfterJitterSeconds', 'layer', 'version', 'units', 'ruleId'],
  ...['connections', 'prefix', 'deadlineMs', 'nodes', 'readFrom', 'leases', 'maxKeys', 'nearMs'],
  ...['points', 'duration', 'blockDuration', 'budgetMs', 'callsMax'],
  ...['ip', 'subject.ip', 'method', 'subject.method', 'plan', 'subject.plan', 'cost', 'subject.cost'],
])

function guarded(field: string, value: unknown, fix: string): Fault {
  return isPrintable(field, value) ? { field, value, fix } : withheld(field, value, fix)
}

/** A fault that describes its value instead of carrying it. */
export function withheld(field: string, value: unknown, fix: string): Fault {
  return isScalar(value) ? { field, value, fix } : { field, value: described(value), fix, withheld: true }
}

function isPrintable(field: string, value: unknown): boolean {
  if (!PRINTED.has(field)) return isScalar(value)
  const isPlain = (one: unknown) => typeof one === 'string' || isScalar(one)
  return Array.isArray(value) ? value.every(isPlain) : isPlain(value)
}

/** Values that cannot be secrets in themselves: absent ones, flags and numbers. */
function isScalar(value: unknown): boolean {
  return value === undefined || value === null || typeof value === 'boolean' || typeof value === 'number'
}

function described(value: unknown): string {
  if (typeof value === 'string') return `a text of ${value.length} characters`
  if (Array.isArray(value)) return `a list of ${value.length}`
  if (typeof value !== 'object' || value === null) return `a ${typeof value}`
  const maker: unknown = Object.getPrototypeOf(value)?.constructor?.name
  return typeof maker === 'string' && maker !== '' && maker !== 'Object' ? `an object of ${maker}` : 'an object'
}

const SHOWN_LENGTH_MAX = 80

/** A value as a person would write it, cut to a length that fits in a message or a log line. */
export function show(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value.slice(0, SHOWN_LENGTH_MAX)) : plainText(value)
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…` : text
}

function plainText(value: unknown): string {
  if (typeof value !== 'object' || value === null) return String(value)
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    return Object.prototype.toString.call(value) // circular, or a toJSON that throws
  }
}

/** `field: fix (got value)`, in one shape everywhere. */
export function faultText({ field, value, fix, withheld }: Fault): string {
  return `${field}: ${fix} (got ${withheld ? value : show(value)})`
}
