// Messages of the gRPC API, encoded and decoded by protobufjs from the .proto files: independent of the codecs of the
// server.

import { fileURLToPath } from 'node:url'
import protobuf from 'protobufjs'

const PROTO = fileURLToPath(new URL('../../proto/', import.meta.url))
const cache = new Map<string, protobuf.Root>()

function rootOf(file: string): protobuf.Root {
  const known = cache.get(file)
  if (known !== undefined) return known
  const root = new protobuf.Root()
  root.resolvePath = (_origin, target) => PROTO + target
  root.loadSync(file, { keepCase: true })
  cache.set(file, root)
  return root
}

export type Codec = {
  encode(message: Record<string, unknown>): Uint8Array
  /** Absent optional fields are absent; numbers are numbers. */
  decode(bytes: Uint8Array): Record<string, unknown>
}

export function codec(file: string, type: string): Codec {
  const found = rootOf(file).lookupType(type)
  return {
    encode: (message) => {
      const mistake = found.verify(message)
      if (mistake !== null) throw new Error(mistake)
      return found.encode(found.fromObject(message)).finish()
    },
    decode: (bytes) => found.toObject(found.decode(bytes), { longs: Number, enums: String, oneofs: false }),
  }
}

const FILE = 'sluice/v1/rate_limiter.proto'
export const RATE_LIMITER = '/sluice.v1.RateLimiter'
export const CheckRequest: Codec = codec(FILE, 'sluice.v1.CheckRequest')
export const CheckResponse: Codec = codec(FILE, 'sluice.v1.CheckResponse')
export const CheckManyRequest: Codec = codec(FILE, 'sluice.v1.CheckManyRequest')
export const CheckManyResponse: Codec = codec(FILE, 'sluice.v1.CheckManyResponse')
export const CheckStreamRequest: Codec = codec(FILE, 'sluice.v1.CheckStreamRequest')
export const CheckStreamResponse: Codec = codec(FILE, 'sluice.v1.CheckStreamResponse')
export const RefundRequest: Codec = codec(FILE, 'sluice.v1.RefundRequest')
export const RefundResponse: Codec = codec(FILE, 'sluice.v1.RefundResponse')
export const ExplainRequest: Codec = codec(FILE, 'sluice.v1.ExplainRequest')
export const ExplainResponse: Codec = codec(FILE, 'sluice.v1.ExplainResponse')
