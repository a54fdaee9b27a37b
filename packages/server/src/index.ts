// The service as a part of another program: put an app together, or start it from settings as the command does.

export { type OpenStore, openStore } from './counters/open-store.ts'
export { GATEWAY_SETTINGS, type GatewaySettings } from './gateway/settings.ts'
export { startGateway } from './gateway/start.ts'
export { type AppParts, createApp } from './http/app.ts'
export { CHECK_ANSWER, CHECK_BODY } from './http/bodies/schemas.ts'
export { createLog, type KeyHash, keyHash, type Log } from './log.ts'
export { Metrics } from './metrics/metrics.ts'
export type { Lifecycle } from './node/health.ts'
export { type Server, startServer } from './node/server.ts'
export { defaultSettings } from './settings/default-settings.ts'
export { SETTINGS, type Setting, type Settings } from './settings/settings.ts'
