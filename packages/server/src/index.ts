// The service as a library: build an app, or start a node from settings.

export { GATEWAY_SETTINGS, type GatewaySettings } from './gateway/settings.ts'
export { startGateway } from './gateway/start.ts'
export { type AppDeps, createApp } from './http/app.ts'
export { CHECK_ANSWER, CHECK_BODY } from './http/bodies/schemas.ts'
export type { Lifecycle } from './http/node-health.ts'
export { createLog, type KeyHash, keyHash, type Log } from './log.ts'
export { Metrics } from './metrics/metrics.ts'
export { type Server, startServer } from './service/server.ts'
export { defaultSettings } from './settings/default-settings.ts'
export type { Setting } from './settings/setting.ts'
export { SETTINGS, type Settings } from './settings/settings.ts'
export { type OpenStore, openStore } from './store/open-store.ts'
