// The one error class of the library and its closed set of codes. A refusal is never an error: it is a Decision.

/** Fix by error code. docs/reference/errors.md has one heading per code; a test keeps the two equal. */
export const ERRORS = {
  OPTION_INVALID: 'Fix the option named in the message.',
  RULE_INVALID: 'Fix the rule named in the message; the active rules stay.',
  SUBJECT_INVALID: 'Fix the fact of the request named in the message.',
  STORE_UNAVAILABLE: 'The store did not answer: check Redis and the network.',
  DEADLINE_EXCEEDED: 'The caller gave up before the store answered: allow more time.',
  STORE_FULL: 'Redis is out of memory: raise maxmemory.',
  STORE_CORRUPT: 'A stored value cannot be read: reset the bucket or delete the key named in the message.',
  STORE_CROWDED:
    'Too many buckets of one owner: use fewer rules whose scope begins with its fact. Too many refunds: retry later.',
  CLOSED: 'The limiter or store was closed: create a new one.',
} as const

export type ErrorCode = keyof typeof ERRORS

/** One mistake in an input, for programs; the error message is for people. */
export type FieldError = {
  readonly field: string
  readonly value: unknown
  readonly fix: string
  /** `value` is a description: the value itself may be a secret. */
  readonly withheld?: true
}

/** HTTP status by code, for frameworks that read it from an error. */
const STATUS: Readonly<Partial<Record<ErrorCode, number>>> = {
  SUBJECT_INVALID: 400,
  STORE_UNAVAILABLE: 503,
  DEADLINE_EXCEEDED: 504,
  STORE_FULL: 503,
  STORE_CORRUPT: 503,
  STORE_CROWDED: 503,
}

export class LimiterError extends Error {
  override readonly name = 'LimiterError'
  readonly code: ErrorCode
  /** HTTP status that Express and other frameworks respond with. */
  readonly status: number
  /** One per mistake, for bad input; empty for every other code. */
  readonly fieldErrors: readonly FieldError[]

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; fieldErrors?: readonly FieldError[] } = {},
  ) {
    super(`[${code}] ${message}`, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.status = STATUS[code] ?? 500
    this.fieldErrors = options.fieldErrors ?? []
  }
}

export function optionInvalid(field: string, value: unknown, fix: string): LimiterError {
  return optionsInvalid([{ field, value, fix }])
}

export function optionsInvalid(given: readonly FieldError[]): LimiterError {
  const fieldErrors = given.map(({ field, value, fix }) => safeFieldError(field, value, fix))
  return new LimiterError('OPTION_INVALID', fieldErrors.map(fieldErrorText).join('; '), { fieldErrors })
}

export function subjectInvalid(field: string, value: unknown, fix: string): LimiterError {
  const fieldError = safeFieldError(field, value, fix)
  return new LimiterError('SUBJECT_INVALID', fieldErrorText(fieldError), { fieldErrors: [fieldError] })
}

/**
 * Options and facts that are never secret. Other strings are withheld from errors, which end up in logs: they may be
 * passwords in a URL, API keys or header values.
 */
const NEVER_SECRET: ReadonlySet<string> = new Set([
  ...['limit', 'window', 'algorithm', 'burst', 'name', 'ipv6Prefix', 'trustProxy', 'proxyHeader', 'refund'],
  ...['headers.style', 'headers.retryAfterJitterSeconds', 'layer', 'version', 'units', 'ruleId'],
  ...['connections', 'prefix', 'deadlineMs', 'nodes', 'readFrom', 'slotGroups', 'leases', 'maxKeys', 'nearMs'],
  ...['points', 'duration', 'blockDuration', 'budgetMs', 'callsMax'],
  ...['ip', 'subject.ip', 'method', 'subject.method', 'plan', 'subject.plan', 'cost', 'subject.cost'],
])

function safeFieldError(field: string, value: unknown, fix: string): FieldError {
  return isPrintable(field, value) ? { field, value, fix } : withheld(field, value, fix)
}

/** A field error that describes its value instead of including it. */
export function withheld(field: string, value: unknown, fix: string): FieldError {
  return isScalar(value) ? { field, value, fix } : { field, value: described(value), fix, withheld: true }
}

function isPrintable(field: string, value: unknown): boolean {
  if (!NEVER_SECRET.has(field)) return isScalar(value)
  const isPlain = (one: unknown) => typeof one === 'string' || isScalar(one)
  return Array.isArray(value) ? value.every(isPlain) : isPlain(value)
}

/** Values that cannot be secret: absent ones, flags and numbers. */
function isScalar(value: unknown): boolean {
  return value === undefined || value === null || typeof value === 'boolean' || typeof value === 'number'
}

function described(value: unknown): string {
  if (typeof value === 'string') return `a string of ${value.length} ${value.length === 1 ? 'character' : 'characters'}`
  if (Array.isArray(value)) return `a list of ${value.length}`
  if (typeof value !== 'object' || value === null) return `a ${typeof value}`
  const className: unknown = Object.getPrototypeOf(value)?.constructor?.name
  return typeof className === 'string' && className !== '' && className !== 'Object'
    ? `an instance of ${className}`
    : 'an object'
}

const SHOWN_LENGTH_MAX = 80

/** Formats a value for a message or log line, truncated. */
export function show(value: unknown): string {
  const text = jsonStart(value, SHOWN_LENGTH_MAX + 1)
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX - 1)}…` : text
}

/**
 * The first characters of a value as JSON: more than `length` only if the value is longer. Reads no more of it, because
 * values come from requests and may be megabytes of any depth. What JSON does not have is written as in JavaScript.
 */
export function jsonStart(value: unknown, length: number): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, length))
  if (typeof value !== 'object' || value === null) return String(value)
  if (!isPlain(value)) return wholeText(value)
  const isList = Array.isArray(value)
  let text = isList ? '[' : '{'
  for (const name of isList ? value.keys() : Object.keys(value)) {
    if (text.length > length) return text
    const inner = (value as Readonly<Record<string | number, unknown>>)[name]
    if (inner === undefined && !isList) continue
    if (text.length > 1) text += ','
    if (!isList) text += `${JSON.stringify(String(name).slice(0, length))}:`
    text += inner === undefined ? 'null' : jsonStart(inner, Math.max(0, length - text.length))
  }
  return `${text}${isList ? ']' : '}'}`
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

/** Instances of classes come from programs, not from requests. */
function wholeText(value: object): string {
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    return Object.prototype.toString.call(value) // circular, or a toJSON that throws
  }
}

/** Formats a field error: `field: fix (got value)`. */
export function fieldErrorText({ field, value, fix, withheld }: FieldError): string {
  return `${field}: ${fix} (got ${withheld ? value : show(value)})`
}
