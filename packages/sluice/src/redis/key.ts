// Builds the names of keys in Redis. Two owners never share a name. Owners and details are escaped, so they
// add no control characters or braces, and their length is bounded. In a Cluster, names start with the hash tag of the
// owner's slot group, so all buckets of one owner are in one slot.

import type { Limit } from '../algorithms/limit.ts'
import { isPacked } from '../algorithms/registry.ts'
import { ALGORITHMS } from '../algorithms/traits.ts'
import { hmacSha256 } from '../sha-256.ts'
import type { BucketName } from '../store/store.ts'
import type { SlotGroups } from './slot-groups.ts'

/** Longer strings are replaced by a keyed hash. */
const TEXT_LENGTH_MAX = 96
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are escaped here
const UNSAFE = /[%{}#\u0000-\u0020\u007f\ud800-\udfff]/g
/** Unpaired surrogates, which the JSON parser of Redis rejects, and the character that begins their escape sequence. */
const UNPAIRED = /[\ud800-\udfff\uffff]/gu
const ESCAPE = '\uffff'
/** Longer strings within a value are replaced by a keyed hash: lengths take two bytes there. */
const VALUE_TEXT_LENGTH_MAX = 1024
const PLAIN = /^[\w.:@/\u002d]*$/

export class KeyNames {
  /** Undefined unless Redis is a Cluster. */
  readonly groups: SlotGroups | undefined
  readonly #prefix: string
  readonly #secret: string

  constructor(prefix: string, secret: string, groups?: SlotGroups) {
    this.groups = groups
    this.#prefix = prefix
    this.#secret = secret
  }

  /**
   * Key of a bucket. Packed buckets of an owner share one value. Buckets with an unbounded detail, logs and permits
   * have their own values, so that the shared one stays small.
   */
  keyOf(limit: Limit, owner: string, detail: string): string {
    const shard = limit.shard === undefined ? '' : `#${limit.shard.index}`
    const group = this.groups?.tagOf({ limit, owner }) ?? ''
    const value = `${this.#prefix}:${group}{${limit.fact === '' ? '*' : limit.fact}:${this.#safe(owner)}${shard}}`
    return sharesValue(limit) ? value : `${value}:${kindOf(limit)}:${limit.id}|${this.#safe(detail)}`
  }

  /** Key of an idempotency record: in a Cluster, in the slot of the bucket. */
  idempotencyKeyName(bucket: BucketName, id: string): string {
    return `${this.#prefix}:${this.groups?.tagOf(bucket) ?? ''}once:${this.#safe(id)}`
  }

  /** Records the number of slot groups: see slot-record.ts. */
  get slotGroupsKey(): string {
    return `${this.#prefix}:slot-groups`
  }

  /** Encodes a detail or an op id for a value. Injective: the escape character is escaped as well. */
  textInValue(text: string): string {
    if (text.length > VALUE_TEXT_LENGTH_MAX) return `${ESCAPE}${this.#digest(text)}`
    return text.replace(UNPAIRED, (unit) => `${ESCAPE}${unit.charCodeAt(0).toString(16)}`)
  }

  #digest(text: string): string {
    return `#${hmacSha256(this.#secret, text, 'utf16le')}`
  }

  #safe(text: string): string {
    if (text.length > TEXT_LENGTH_MAX) return this.#digest(text)
    return PLAIN.test(text)
      ? text
      : text.replace(UNSAFE, (unit) => `%${unit.charCodeAt(0).toString(16).padStart(2, '0')}`)
  }
}

/** The kind of value is part of the key: a rule that changes to an algorithm of another kind gets another key. */
function kindOf(limit: Limit): string {
  return ALGORITHMS[limit.algorithm].storage
}

/** Whether a bucket shares a value with other buckets of its owner, and is distinguished by its detail there. */
export function sharesValue(limit: Limit): boolean {
  // Buckets of global rules have no owner in common, and there may be any number of them.
  return isPacked(limit) && limit.detailBounded && limit.fact !== ''
}
