// Default deadlines of the service. The library has its own default (DEADLINE_MS in failure/guard-store.ts).

export const STORE_DEADLINE_MS = 100
/** Longer than the regional deadline: regions are far apart, and few checks wait for the global Redis. */
export const GLOBAL_DEADLINE_MS = 250
