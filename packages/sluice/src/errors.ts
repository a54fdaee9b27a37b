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

/** What exactly is wrong with one input: tools print these three, people read the message. */
export type Fault = { readonly field: string; readonly value: unknown; readonly fix: string }

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

export function optionsInvalid(faults: readonly Fault[]): LimiterError {
  return new LimiterError('OPTION_INVALID', faults.map(faultText).join('; '), { faults })
}

/** For a value that may be a secret: the error tells its type alone. */
export function wrongType(field: string, value: unknown, fix: string): LimiterError {
  const type = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value
  const fault: Fault = { field, value: type, fix }
  return new LimiterError('OPTION_INVALID', `${field}: ${fix} (got type ${type})`, { faults: [fault] })
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
export function faultText({ field, value, fix }: Fault): string {
  return `${field}: ${fix} (got ${show(value)})`
}
