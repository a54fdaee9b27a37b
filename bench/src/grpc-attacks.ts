// Expensive messages for every method of a gRPC service. Methods and message types come from its reflection, so a new
// one is included.

import { randomBytes } from 'node:crypto'
import { connect } from 'node:http2'
import { gzipSync } from 'node:zlib'
import { encodeRequests, type WireRequest } from 'sluice/remote-wire'

const LEN = 2
/** Types of FieldDescriptorProto whose values have a length. */
const [STRING, MESSAGE, BYTES] = [9, 11, 12]
const VARINTS = [3, 4, 5, 8, 13, 14]
/** Messages inside messages, in the worst message of a method. */
const DEPTH_MAX = 2

export type GrpcAttack = {
  /** `/sluice.v1.RateLimiter/Check: …` */
  readonly name: string
  readonly path: string
  readonly make: (bytes: number) => readonly Buffer[]
  /** Whether the messages are compressed. */
  readonly isGzip?: boolean
}

type Field = { readonly name: string; readonly number: number; readonly type: number; readonly of: string }
type MethodFound = { readonly path: string; readonly input: string; readonly streams: boolean }
type Found = { readonly methods: MethodFound[]; readonly messages: Map<string, Field[]> }

export async function grpcAttacks(port: number): Promise<GrpcAttack[]> {
  const found: Found = { methods: [], messages: new Map() }
  const reflect = async (request: Buffer) => {
    const replies = await grpcCall(port, '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo', [request])
    return decoded(replies[0] ?? Buffer.alloc(0))
  }
  const list = inner(await reflect(field(7, Buffer.from('*'))), 6)
  for (const service of all(decoded(list), 1)) {
    const name = text(inner(decoded(service), 1))
    const files = inner(await reflect(field(4, Buffer.from(name))), 4)
    for (const file of all(decoded(files), 1)) readFile(file, found)
  }
  const unique = new Map(found.methods.map((method) => [method.path, method]))
  return [...unique.values()].flatMap((method) => attacksOf(method, found.messages)).concat(largest(), compressed())
}

/** Messages of gzip that take long to read, in one turn or in a thread, and what they contain. */
function compressed(): GrpcAttack[] {
  const path = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit'
  const values = (bytes: number) => Buffer.alloc(Math.floor(bytes / 2), Buffer.of(0x78, 1)) // field 15, number 1
  const letters = (bytes: number) => field(1, Buffer.from(randomBytes(Math.floor(bytes / 2) - 10).toString('hex')))
  const attacks: readonly (readonly [name: string, make: (bytes: number) => Buffer])[] = [
    ['short gzip of many fields', (bytes) => gzipSync(values(bytes))],
    ['gzip of as many fields as are accepted', () => gzipSync(values(240_000))],
    ['gzip of long text', (bytes) => gzipSync(letters(bytes))],
    ['short gzip of empty blocks', () => emptyBlocks(64 * 1024)],
    ['gzip of empty blocks', emptyBlocks],
  ]
  return attacks.map(([name, make]) => ({
    name: `${path}: ${name}`,
    path,
    make: (bytes) => [make(bytes)],
    isGzip: true,
  }))
}

/** Gzip that contains nothing: each block of 90 bits makes the reader build its tables. */
function emptyBlocks(bytes: number): Buffer {
  const blocks = Buffer.alloc(bytes - 18)
  let at = 0
  const put = (value: number, bits: number) => {
    for (let bit = 0; bit < bits; bit += 1, at += 1) {
      if ((value >> bit) & 1) blocks[at >> 3] = (blocks[at >> 3] ?? 0) | (1 << (at & 7))
    }
  }
  const lengths = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1]
  while (at + 200 < blocks.length * 8) {
    put(at + 300 < blocks.length * 8 ? 0 : 1, 1)
    put(2, 2)
    put(0, 10) // 257 literals and lengths, one distance
    put(lengths.length - 4, 4)
    for (const length of lengths) put(length === 18 || length === 1 ? 1 : 0, 3)
    for (const zeros of [138, 118]) put(1 + 2 * (zeros - 11), 8)
    put(0, 3) // the lengths of the end of the block and of the distance, and the end
  }
  return Buffer.concat([gzipSync('').subarray(0, 10), blocks, Buffer.alloc(8)])
}

/** Valid messages that are as large as the methods with lists accept. */
function largest(): GrpcAttack[] {
  const entry = (key: string, value: Buffer | string) => Buffer.concat([field(1, word(key)), field(2, word(value))])
  const list = (count: number, item: (index: number) => Buffer) =>
    Buffer.concat(Array.from({ length: count }, (_, index) => item(index)))
  const check = (index: number) => {
    const facts = ['user_', '/api/v1/messages', 'POST', '192.0.2.1', 'key_', 'tenant_', 'plan_0']
    const texts = facts.map((fact, at) => field(at + 1, word(fact.endsWith('_') ? `${fact}${index}` : fact)))
    const attributes = list(32, (at) => field(10, entry(`a${at}`, field(1, word('x')))))
    return field(1, Buffer.concat([...texts, attributes, tag(13, 0), varint(1)]))
  }
  const take = (index: number): WireRequest => {
    const name = { ruleId: 'rule_0', name: 'default', plan: undefined, byIp: false }
    const charge = { name, facts: { user: `user_${index}` }, fingerprint: '', min: 1, max: 5, kind: 'enforce' } as const
    return { type: 'take', charges: Array(16).fill(charge), op: '', returns: [] }
  }
  const descriptor = (index: number) =>
    field(
      2,
      list(64, (at) => field(1, entry(`k${at}`, `${index}`))),
    )
  const bucket = (index: number) => {
    const id = list(4, (at) => field(1, entry(at === 0 ? 'user' : `k${at}`, `${index}`)))
    return field(2, Buffer.concat([field(1, id), tag(3, 0), varint(5), tag(4, 0), varint(1)]))
  }
  const messages: readonly (readonly [path: string, name: string, message: Buffer])[] = [
    ['/sluice.v1.RateLimiter/CheckMany', '1000 checks with all facts', list(1000, check)],
    [
      '/sluice.v1.Leases/Exchange',
      '1000 takes of 16 charges',
      encodeRequests(Array.from({ length: 1000 }, (_, index) => take(index))),
    ],
    [
      '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit',
      '128 descriptors of 64 entries',
      Buffer.concat([field(1, word('edge')), list(128, descriptor)]),
    ],
    [
      '/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas',
      '10,000 buckets',
      Buffer.concat([field(1, word('edge')), list(10_000, bucket)]),
    ],
  ]
  return messages.map(([path, name, message]) => ({ name: `${path}: ${name}`, path, make: () => [message] }))
}

function attacksOf({ path, input, streams }: MethodFound, types: Found['messages']): GrpcAttack[] {
  const usual = minimal(input, types, DEPTH_MAX)
  const attacks = fillings(input, types, DEPTH_MAX).map(({ name, make }): GrpcAttack => {
    // A stream may learn from its first message what later ones leave out.
    return { name: `${path}: ${name}`, path, make: (bytes) => [...(streams ? [usual] : []), make(bytes)] }
  })
  attacks.unshift({ name: `${path}: a usual message`, path, make: () => [usual] })
  if (streams) {
    for (const [name, message] of [
      ['usual', usual],
      ['empty', Buffer.alloc(0)],
    ] as const) {
      const make = (bytes: number) => Array<Buffer>(Math.floor(bytes / (message.length + 5))).fill(message)
      attacks.push({ name: `${path}: many ${name} messages`, path, make: (bytes) => make(Math.min(bytes, 262_144)) })
    }
  }
  return attacks
}

type Filling = { readonly name: string; readonly make: (bytes: number) => Buffer }

/** Messages of a type that are full of one of its fields, or of a field of one of these. */
function fillings(type: string, types: Found['messages'], depth: number): Filling[] {
  return (types.get(type) ?? []).flatMap(({ name, number, type: kind, of }): Filling[] => {
    const many = (item: Buffer) => (bytes: number) => Buffer.concat(Array(Math.floor(bytes / item.length)).fill(item))
    if (VARINTS.includes(kind))
      return [{ name: `many ${name}`, make: many(Buffer.concat([tag(number, 0), varint(1)])) }]
    if (kind === STRING || kind === BYTES) {
      const one = (item: string) => (bytes: number) => {
        return field(number, Buffer.from(item.repeat(Math.floor((bytes - 10) / item.length))))
      }
      return [
        { name: `many ${name}`, make: many(field(number, Buffer.from('x'))) },
        { name: `a long ${name}`, make: one('a') },
        { name: `${name} of dots`, make: one('/..') },
        { name: `${name} of nested lists`, make: (bytes) => field(number, Buffer.from('['.repeat(bytes - 10))) },
      ]
    }
    if (kind !== MESSAGE) return []
    const usual = minimal(of, types, depth)
    const inside = depth === 0 ? [] : fillings(of, types, depth - 1)
    const numbered = (bytes: number) => {
      const items: Buffer[] = []
      for (let length = 0; length < bytes - 100; length += items.at(-1)?.length ?? 0) {
        items.push(field(number, minimal(of, types, depth, String(items.length))))
      }
      return Buffer.concat(items)
    }
    return [
      { name: `many empty ${name}`, make: many(field(number, Buffer.alloc(0))) },
      { name: `many ${name}`, make: many(field(number, usual)) },
      {
        name: `a thousand ${name}`,
        make: (bytes) => many(field(number, usual))(Math.min(bytes, 1000 * (usual.length + 4))),
      },
      { name: `many different ${name}`, make: numbered },
      ...inside.map((one) => ({
        name: `${name}: ${one.name}`,
        make: (bytes: number) => field(number, one.make(Math.max(100, bytes - 10))),
      })),
      // As many as a service accepts, each a part of the size.
      ...inside.map((one) => ({
        name: `100 ${name}: ${one.name}`,
        make: (bytes: number) =>
          Buffer.concat(Array(100).fill(field(number, one.make(Math.max(100, bytes / 100 - 20))))),
      })),
    ]
  })
}

/** Every field once: texts are short, numbers are 1. */
function minimal(type: string, types: Found['messages'], depth: number, word = 'x'): Buffer {
  const parts = (types.get(type) ?? []).map(({ name, number, type: kind, of }) => {
    if (VARINTS.includes(kind)) return Buffer.concat([tag(number, 0), varint(1)])
    if (kind === STRING) return field(number, Buffer.from(textFor(name, word)))
    if (kind === MESSAGE && depth > 0) return field(number, minimal(of, types, depth - 1, word))
    return Buffer.alloc(0)
  })
  return Buffer.concat(parts)
}

function textFor(name: string, word: string): string {
  const known: Record<string, string> = {
    endpoint: '/api/v1/messages',
    method: 'POST',
    ip_address: '192.0.2.1',
    domain: 'edge',
    rule_id: 'rule_0',
    subject_json: '{"user":"x"}',
    limit: 'default',
  }
  return known[name] ?? word
}

/** FileDescriptorProto: the package, its messages and services. */
function readFile(bytes: Buffer, { methods, messages }: Found): void {
  const file = decoded(bytes)
  const prefix = text(inner(file, 2))
  for (const message of all(file, 4)) readMessage(message, `.${prefix}`, messages)
  for (const service of all(file, 6).map(decoded)) {
    const name = text(inner(service, 1))
    for (const method of all(service, 2).map(decoded)) {
      const path = `/${prefix}.${name}/${text(inner(method, 1))}`
      methods.push({ path, input: text(inner(method, 2)), streams: (method.get(5)?.length ?? 0) > 0 })
    }
  }
}

function readMessage(bytes: Buffer, prefix: string, messages: Found['messages']): void {
  const message = decoded(bytes)
  const name = `${prefix}.${text(inner(message, 1))}`
  const fields = all(message, 2).map((one): Field => {
    const found = decoded(one)
    const number = Number(found.get(3)?.[0] ?? 0)
    return { name: text(inner(found, 1)), number, type: Number(found.get(5)?.[0] ?? 0), of: text(inner(found, 6)) }
  })
  messages.set(name, fields)
  for (const nested of all(message, 3)) readMessage(nested, name, messages)
}

type Decoded = ReadonlyMap<number, readonly (Buffer | number)[]>

/** Values by field number. */
function decoded(bytes: Buffer): Decoded {
  const fields = new Map<number, (Buffer | number)[]>()
  let at = 0
  const readVarint = () => {
    let value = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = bytes[at++] ?? 0
      value += (byte & 127) * factor
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const key = readVarint()
    const [number, wire] = [Math.floor(key / 8), key % 8]
    let value: Buffer | number = readVarint()
    if (wire === LEN) {
      at += value
      value = bytes.subarray(at - value, at)
    }
    const values = fields.get(number)
    if (values === undefined) fields.set(number, [value])
    else values.push(value)
  }
  return fields
}

function all(message: Decoded, number: number): Buffer[] {
  return (message.get(number) ?? []).filter((value) => typeof value !== 'number')
}

function inner(message: Decoded, number: number): Buffer {
  return all(message, number)[0] ?? Buffer.alloc(0)
}

function word(value: Buffer | string): Buffer {
  return typeof value === 'string' ? Buffer.from(value) : value
}

function text(bytes: Buffer): string {
  return bytes.toString()
}

function field(number: number, value: Buffer): Buffer {
  return Buffer.concat([tag(number, LEN), varint(value.length), value])
}

function tag(number: number, wire: number): Buffer {
  return varint(number * 8 + wire)
}

function varint(value: number): Buffer {
  const bytes: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    bytes.push(rest < 128 ? rest : (rest % 128) + 128)
    if (rest < 128) return Buffer.from(bytes)
  }
}

const OPEN_MS_MAX = 500

/** Sends messages; resolves with the replies when the call ends, or with those that came until a stream is idle. */
export function grpcCall(
  port: number,
  path: string,
  messages: readonly Buffer[],
  token?: string,
  isGzip = false,
): Promise<Buffer[]> {
  const session = connect(`http://127.0.0.1:${port}`)
  return new Promise<Buffer[]>((resolve) => {
    const chunks: Buffer[] = []
    const done = () => resolve(repliesIn(Buffer.concat(chunks)))
    session.on('error', done)
    const stream = session.request({
      ...{ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers' },
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(isGzip ? { 'grpc-encoding': 'gzip' } : {}),
    })
    stream.on('error', done).on('close', done)
    stream.on('data', (chunk: Buffer) => chunks.push(chunk))
    const framed = messages.map((message) => {
      const prefix = Buffer.alloc(5)
      prefix[0] = isGzip ? 1 : 0
      prefix.writeUInt32BE(message.length, 1)
      return Buffer.concat([prefix, message])
    })
    stream.end(Buffer.concat(framed), () => {
      // Some streams stay open: when a ping after the messages is answered, these were read.
      if (!session.destroyed) session.ping(() => setTimeout(done, OPEN_MS_MAX).unref())
    })
  }).finally(() => session.destroy())
}

function repliesIn(bytes: Buffer): Buffer[] {
  const replies: Buffer[] = []
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1)
    replies.push(bytes.subarray(at + 5, end))
    at = end
  }
  return replies
}
