// sluice/remote: a limiter whose store is the service, for gateways without access to Redis.

export { createRemoteLimiter, type RemoteLimiterOptions } from './create-remote-limiter.ts'
export type { RemoteHealth, RemoteLimiter } from './remote-limiter.ts'
export { type Exchange, RemoteStore, type RemoteStoreOptions } from './remote-store.ts'
