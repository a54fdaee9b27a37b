// Rules for counterfactual charges: the version of a rule that is not enforced, evaluated with the same request.

import { type Charge, isBinding, type Short } from './store.ts'

/** Counterfactual buckets are kept this long after they are full: a new one would start from the live bucket again. */
export const COUNTERFACTUAL_RETENTION_US = 600_000_000

type Evaluated = { readonly charge: Charge; readonly short: Short }

/** Whether a charge takes its units, given all charges of the take and whether it is granted. */
export function isCharged({ kind, pair }: Charge, granted: boolean, evaluated: readonly Evaluated[]): boolean {
  return kind === 'counterfactual' ? chargesPair(evaluated, pair) : granted || kind === 'force'
}

/** Whether the counterfactual charges of a pair are charged. Does not depend on the enforced charges of the pair. */
function chargesPair(evaluated: readonly Evaluated[], pair: number | undefined): boolean {
  return evaluated.every(({ charge, short }) => {
    if (short === false) return true
    return charge.kind === 'counterfactual' ? charge.pair !== pair : !isBinding(charge.kind) || charge.pair === pair
  })
}
