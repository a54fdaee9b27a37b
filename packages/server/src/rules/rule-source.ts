// Interface of a rule source: a file, the database or etcd. A source only reads rules; live-rules.ts validates and
// activates them.

import type { FieldError, LimiterError, Rule } from 'sluice'

/** A whole rule set as read from its source, not yet validated. */
export type FoundRules = {
  /** In any form that `parseRules` accepts. */
  readonly rules: unknown
  /** Increases with each change. Undefined if the source has no versions; the limiter then assigns them. */
  readonly version?: number | undefined
  /** Time since the last change by the clock of the source, if known. */
  readonly ageMs?: number | undefined
  /** Builds the error for invalid rules, with locations such as file and line. */
  readonly errorOf?: (fieldErrors: readonly FieldError[]) => Promise<LimiterError>
}

export interface RuleSource {
  readonly kind: 'file' | 'database' | 'etcd'
  /** For messages: `the file /etc/sluice/rules.yaml`. Without passwords. */
  readonly location: string
  /**
   * Reads a consistent set; undefined if it is still version `known`. Rejects with RULE_INVALID if the content cannot
   * be parsed at all, and with any other error if the source is unreachable. `present` are the active rules if they are
   * version `known`. Unchanged rules should be returned as the same objects, which skips their validation.
   */
  read(known: number | undefined, present?: readonly Rule[]): Promise<FoundRules | undefined>
  /**
   * Calls `changed` whenever the rules may have changed, including after a lost connection. Spurious calls are allowed.
   * Resolves immediately, even if the source is unreachable, and keeps watching until stopped.
   */
  watch(changed: () => void): Promise<RuleWatch>
  close(): Promise<void>
}

export type RuleWatch = { stop(): Promise<void> }
