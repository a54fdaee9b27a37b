// Where rules come from: a file, the database or etcd, exactly one of them. A source only finds rules; whether they are
// good, and when they come into force, is decided in one place for all sources (live-rules.ts).

import type { Fault, LimiterError, Rule } from 'sluice'

/** A whole rule set as its source holds it: not parsed yet, so perhaps wrong. */
export type FoundRules = {
  /** In any form that `parseRules` understands. */
  readonly rules: unknown
  /** Grows with each change. Undefined where nobody counts: then the limiter does. */
  readonly version?: number | undefined
  /** How long ago they changed, by the clock of the source, if it knows. */
  readonly ageMs?: number | undefined
  /** What is wrong with them, told with the places that people know, such as file and line. */
  readonly errorOf?: (faults: readonly Fault[]) => Promise<LimiterError>
}

export interface RuleSource {
  readonly kind: 'file' | 'database' | 'etcd'
  /** For people: `the file /etc/sluice/rules.yaml`. Without passwords. */
  readonly place: string
  /**
   * The rules as they are now, all of one moment; undefined while they are still those of `known`. Rejects with
   * RULE_INVALID when they cannot be rules at all, and with any other error when the source cannot be asked. `present`
   * are the rules of that version if they are in force: those that are handed over again cost next to nothing.
   */
  read(known: number | undefined, present?: readonly Rule[]): Promise<FoundRules | undefined>
  /**
   * Calls `changed` whenever there may be other rules, once too often rather than once too seldom, also after a
   * connection was lost. Resolves at once, whether or not the source can be reached, and goes on until it is stopped.
   */
  watch(changed: () => void): Promise<RuleWatch>
  close(): Promise<void>
}

export type RuleWatch = { stop(): Promise<void> }
