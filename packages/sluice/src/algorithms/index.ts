// `sluice/algorithms`: the algorithms as pure functions over (limit, state, time), for simulators. Imports nothing of
// Node.js, so that it also runs in a browser.

export type { Algorithm, ListAlgorithm, PackedState } from './algorithm.ts'
export { compileLimit, type Limit, type LimitNumbers } from './limit.ts'
export { isPacked, LISTED, PACKED } from './registry.ts'
export { ALGORITHM_NAMES, ALGORITHMS, type AlgorithmName, hasPermits } from './traits.ts'
