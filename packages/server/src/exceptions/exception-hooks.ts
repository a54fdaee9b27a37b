// Hooks of checks: count the exceptions that applied, and throttle guesses of bypass tokens. Cost nothing for a
// decision without exceptions.

import type { Subject } from 'sluice'
import type { ExceptionHooks } from '../checks/check-controller.ts'
import type { BypassRegistry } from './bypass-registry.ts'
import type { GuessThrottle } from './guess-throttle.ts'

export type HookDeps = {
  readonly registry: BypassRegistry
  /** False until the tokens are loaded: a valid one must not count as a guess. */
  readonly knowsTokens: () => boolean
  readonly guesses: GuessThrottle
  /** Called for each refused guess. */
  readonly onRefusedGuess: (subject: Subject) => void
}

export type AppliedCounts = Record<'override' | 'signal' | 'factor' | 'bypass', number>

export function exceptionHooks(deps: HookDeps): ExceptionHooks & { readonly applied: Readonly<AppliedCounts> } {
  const { registry, knowsTokens, guesses, onRefusedGuess } = deps
  const applied: AppliedCounts = { override: 0, signal: 0, factor: 0, bypass: 0 }
  return {
    applied,
    refuseGuess: (subject) => {
      if (!knowsTokens() || !registry.isGuess(subject.bypassToken ?? '')) return undefined
      const refusal = guesses.guessed(subject)
      if (refusal !== undefined) onRefusedGuess(subject)
      return refusal
    },
    decided: (subject, decision) => {
      const { exceptions } = decision
      if (exceptions.length === 0) return
      for (const kind of new Set(exceptions.map((one) => one.kind))) applied[kind] += 1
      const used = exceptions.filter(({ kind }) => kind === 'bypass')
      const [first] = used
      if (first === undefined) return
      const rules = used.flatMap(({ ruleId }) => ruleId ?? [])
      registry.used(first.id, rules, decision, subject)
    },
  }
}
