// Default deadlines of the service. The library has its own default (DEADLINE_MS in failure/guard-store.ts).

export const STORE_DEADLINE_MS = 100
/** Longer than the regional deadline: regions are far apart, and few checks wait for the global Redis. */
export const GLOBAL_DEADLINE_MS = 250

/** From the end of the drain to the end of the process. */
export const STOP_MS_MAX = 5000

/** Part of it in which requests in flight may end; then their connections are closed. */
export const CLOSE_MS_MAX = 2500
