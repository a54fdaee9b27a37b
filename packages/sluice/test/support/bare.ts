// Options of a Redis store without wrappers: every take is a round trip without a deadline, and errors are thrown.

export const BARE = { leases: false, deadlineMs: 0 } as const
