// A Redis store without its layers: every take asks Redis, waits as long as it takes, and meets its errors.

export const BARE = { leases: false, deadlineMs: 0 } as const
