// The service as a part of another program: put an app together, or start it from settings as the command does.

export { GATEWAY_SETTINGS, type GatewaySettings } from './gateway/settings.ts'
export { startGateway } from './gateway/start.ts'
export { type AppParts, createApp } from './http/app.ts'
export type { Lifecycle } from './http/health.ts'
export { CHECK_ANSWER, CHECK_BODY } from './http/schemas.ts'
export { createLog, type KeyHash, keyHash, type Log } from './log.ts'
export { Metrics } from './metrics.ts'
export { type OpenStore, openStore } from './open-store.ts'
export { type Server, startServer } from './server.ts'
export { SETTINGS, type Setting, type Settings } from './settings.ts'
