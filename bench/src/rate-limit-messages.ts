// Bytes of Envoy's RateLimitRequest and RateLimitResponse, as far as the gRPC scenarios need them.

/** A request with one descriptor of two entries. */
export function requestOf(domain: string, user: string): Buffer {
  const entry = (key: string, value: string) => text(1, Buffer.concat([text(1, key), text(2, value)]))
  return Buffer.concat([
    text(1, domain),
    text(2, Buffer.concat([entry('path', '/api/v1/messages'), entry('user', user)])),
  ])
}

/** The constant answer of the echo servers: OK, with limit, remaining hits and time until the reset. */
export const ANSWER: Buffer = answer()

/** `overall_code`, which comes first. */
const CODE_TAG = 8
const [OK, OVER_LIMIT] = [1, 2]

/** Whether a response admits the request. Throws if the bytes are not a RateLimitResponse. */
export function isAdmitted(response: Buffer): boolean {
  const [tag, code] = response
  if (tag !== CODE_TAG || (code !== OK && code !== OVER_LIMIT))
    throw new Error(`the server sent an answer without overall_code: ${response.toString('hex')}`)
  return code === OK
}

function answer(): Buffer {
  const day = 4
  const limit = Buffer.concat([number(1, 10_000), number(2, day), text(3, 'per_user')])
  const status = Buffer.concat([number(1, 1), text(2, limit), number(3, 9_999), text(4, number(1, 86_399))])
  return Buffer.concat([number(1, 1), text(2, status)])
}

/** A length-delimited field of fewer than 128 bytes. */
function text(field: number, value: Buffer | string): Buffer {
  const bytes = Buffer.from(value)
  return Buffer.concat([Buffer.of((field << 3) | 2, bytes.length), bytes])
}

function number(field: number, value: number): Buffer {
  const bytes = [field << 3]
  let rest = value
  for (; rest > 127; rest >>>= 7) bytes.push((rest & 127) | 128)
  return Buffer.from([...bytes, rest])
}
