// Compiled, never run: functions of the options get the request of the platform of NestJS, Express or Fastify, without
// an annotation.

import { type INestApplication, UseGuards } from '@nestjs/common'
import { APP_GUARD } from '@nestjs/core'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/nest'

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })

export const guarded: MethodDecorator = UseGuards(rateLimit({ ...limit, key: (req) => req.ip }))
export const provider = { provide: APP_GUARD, useValue: rateLimit({ ...limit, skip: (req) => req.url === '/health' }) }

export function limited(app: INestApplication): INestApplication {
  app.useGlobalGuards(rateLimit({ ...limit, key: (req) => req.headers.authorization }))
  app.useGlobalGuards(rateLimit({ limiter, subject: async (req) => ({ tenant: req.hostname }) }))
  // @ts-expect-error: requests have no such property
  return app.useGlobalGuards(rateLimit({ ...limit, key: (req) => req.nothing }))
}
