// State that a remote node follows: sluice.v1.NodeState of lease.proto. Keys with exceptions are sent as keyed hashes:
// a remote node needs to recognise them, not to know them.

import { HalfSipHash, seedOf } from '../store/half-sip-hash.ts'
import { ProtobufReader, ProtobufWriter } from './protobuf.ts'

export type NodeState = {
  readonly version: number
  /** JSON text of the rules. */
  readonly rules: string
  readonly ipv6Prefix: number
  /** `` for none. */
  readonly layer: string
  readonly disabled: readonly string[] | 'everything'
  readonly decidesAll: boolean
  readonly excepted: ExceptedKeys
  /** The message has a field that this version does not know: a newer service sent it. */
  readonly hasUnknown?: boolean
}

/** Seeds of the hash, the facts of the keys, and 8 bytes per key. */
export type ExceptedKeys = {
  readonly seeds: readonly [number, number]
  readonly facts: readonly string[]
  readonly hashes: Uint8Array
}

const KEY_BYTES = 8

export function exceptedKeys(
  keys: readonly (readonly [fact: string, owner: string])[],
  seeds: readonly [number, number],
): ExceptedKeys {
  const hash = new HalfSipHash()
  const seed = seedOf(...seeds)
  const hashes = Buffer.alloc(keys.length * KEY_BYTES)
  for (const [index, [fact, owner]] of keys.entries()) {
    hash.hash(seed, fact, owner)
    hashes.writeInt32LE(hash.high, index * KEY_BYTES)
    hashes.writeInt32LE(hash.low, index * KEY_BYTES + 4)
  }
  return { seeds, facts: [...new Set(keys.map(([fact]) => fact))], hashes }
}

/** Whether a key is among the excepted ones. A collision, of 64 bits, only costs a round trip. */
export function exceptedKeyTest({ seeds, hashes }: ExceptedKeys): (fact: string, owner: string) => boolean {
  const hash = new HalfSipHash()
  const seed = seedOf(...seeds)
  const bytes = Buffer.from(hashes)
  const known = new Set<number>()
  for (let at = 0; at < bytes.length; at += KEY_BYTES)
    known.add(joined(bytes.readInt32LE(at), bytes.readInt32LE(at + 4)))
  return (fact, owner) => {
    hash.hash(seed, fact, owner)
    return known.has(joined(hash.high, hash.low))
  }
}

/** 53 bits: the most that a number holds exactly. */
function joined(high: number, low: number): number {
  return (high >>> 0) * 2 ** 21 + (low >>> 11)
}

export function encodeState(state: NodeState): Buffer {
  const { disabled, excepted } = state
  const writer = new ProtobufWriter()
  writer.uint(1, state.version).string(2, state.rules).uint(3, state.ipv6Prefix).string(4, state.layer)
  writer.bool(5, disabled === 'everything').bool(6, state.decidesAll)
  if (disabled !== 'everything') for (const ruleId of disabled) writer.string(7, ruleId, true)
  for (const fact of excepted.facts) writer.string(8, fact, true)
  writer.uint(9, excepted.seeds[0]).uint(10, excepted.seeds[1]).bytes(11, excepted.hashes)
  return writer.finish()
}

/** Throws ProtobufError if the message is malformed. */
export function decodeState(message: Uint8Array): NodeState {
  let [version, rules, ipv6Prefix, layer, isAll, decidesAll] = [0, '[]', 0, '', false, false]
  const [disabled, facts]: [string[], string[]] = [[], []]
  let [first, second] = [0, 0]
  let hashes: Uint8Array = new Uint8Array()
  let hasUnknown = false
  const reader = new ProtobufReader(message)
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) version = reader.uint()
    else if (field === 2) rules = reader.string()
    else if (field === 3) ipv6Prefix = reader.uint()
    else if (field === 4) layer = reader.string()
    else if (field === 5) isAll = reader.bool()
    else if (field === 6) decidesAll = reader.bool()
    else if (field === 7) disabled.push(reader.string())
    else if (field === 8) facts.push(reader.string())
    else if (field === 9) first = reader.uint()
    else if (field === 10) second = reader.uint()
    else if (field === 11) hashes = Buffer.from(reader.bytes())
    else {
      hasUnknown = true
      reader.skip()
    }
  }
  const excepted = { seeds: [first, second] as const, facts, hashes }
  const all = { version, rules, ipv6Prefix, layer, decidesAll, excepted, hasUnknown }
  return { ...all, disabled: isAll ? 'everything' : disabled }
}

/** Report of a remote node after each state: sluice.v1.WatchRequest. */
export type NodeReport = {
  /** Version of the rules that it applies. */
  readonly version: number
  /** Reason that it is degraded; `` if it is ready. */
  readonly degraded: string
}

export function encodeReport({ version, degraded }: NodeReport): Buffer {
  return new ProtobufWriter().uint(1, version).string(2, degraded).finish()
}

/** Throws ProtobufError if the message is malformed. */
export function decodeReport(message: Uint8Array): NodeReport {
  let [version, degraded] = [0, '']
  const reader = new ProtobufReader(message)
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) version = reader.uint()
    else if (field === 2) degraded = reader.string()
    else reader.skip()
  }
  return { version, degraded }
}
