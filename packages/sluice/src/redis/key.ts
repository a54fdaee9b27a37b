// Names of values in Redis. They are injective (two owners never share one), hold no character that Redis or a log line
// would misread, and are bounded in length. In a Cluster the hash tag of the owner's group comes first: all buckets of
// one owner live in one slot.

import { createHmac } from 'node:crypto'
import type { Limit } from '../algorithms/limit.ts'
import { isPacked } from '../algorithms/registry.ts'
import type { BucketName } from '../store/store.ts'
import type { SlotGroups } from './slot-groups.ts'

/** Longer texts are named by a keyed hash of them. */
const TEXT_LENGTH_MAX = 96
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this is about
const UNSAFE = /[%{}#\u0000-\u0020\u007f\ud800-\udfff]/g
/** Half of a surrogate pair, which the JSON parser of Redis refuses, and the mark that stands before its escape. */
const UNPAIRED = /[\ud800-\udfff\uffff]/gu
const MARK = '\uffff'
/** Texts within a value have lengths of two bytes; longer ones than this are named by the hash, too. */
const VALUE_TEXT_LENGTH_MAX = 1024
const PLAIN = /^[\w.:@/\u002d]*$/

export class KeyNames {
  /** Of a Cluster. */
  readonly groups: SlotGroups | undefined
  readonly #prefix: string
  readonly #secret: string

  constructor(prefix: string, secret: string, groups?: SlotGroups) {
    this.groups = groups
    this.#prefix = prefix
    this.#secret = secret
  }

  /**
   * Where a bucket lives. Packed buckets of an owner share one value unless their detail is unbounded; those, and logs
   * and permits, have a value of their own, so that they do not weigh on the rest.
   */
  keyOf(limit: Limit, owner: string, detail: string): string {
    const part = limit.shard === undefined ? '' : `#${limit.shard.index}`
    const group = this.groups?.tagOf({ limit, owner }) ?? ''
    const value = `${this.#prefix}:${group}{${limit.fact === '' ? '*' : limit.fact}:${this.#safe(owner)}${part}}`
    return sharesValue(limit) ? value : `${value}:${kindOf(limit)}:${limit.id}|${this.#safe(detail)}`
  }

  /** Where a give is remembered that must happen once: in a Cluster, beside the buckets of the group. */
  onceKey(bucket: BucketName, id: string): string {
    return `${this.#prefix}:${this.groups?.tagOf(bucket) ?? ''}once:${this.#safe(id)}`
  }

  /** A detail or an op id as it is written within a value. Injective: texts with the mark are escaped as well. */
  textInValue(text: string): string {
    if (text.length > VALUE_TEXT_LENGTH_MAX) return `${MARK}${this.#digest(text)}`
    return text.replace(UNPAIRED, (unit) => `${MARK}${unit.charCodeAt(0).toString(16)}`)
  }

  #digest(text: string): string {
    return `#${createHmac('sha256', this.#secret).update(text, 'utf16le').digest('hex')}`
  }

  #safe(text: string): string {
    if (text.length > TEXT_LENGTH_MAX) return this.#digest(text)
    return PLAIN.test(text)
      ? text
      : text.replace(UNSAFE, (unit) => `%${unit.charCodeAt(0).toString(16).padStart(2, '0')}`)
  }
}

/** A key is of one kind for good: a rule that changes its algorithm to another kind of value gets another key. */
function kindOf(limit: Limit): string {
  if (limit.algorithm === 'sliding_window_log') return 'log'
  return limit.algorithm === 'concurrency' ? 'permits' : 'packed'
}

/** Whether a bucket is kept together with the other buckets of its owner, and so is told apart by its detail. */
export function sharesValue(limit: Limit): boolean {
  // Global rules have no owner to be kept together by, and there may be any number of them.
  return isPacked(limit) && limit.detailBounded && limit.fact !== ''
}
