// Prefer: wait=<seconds> (RFC 7240) on a write: if nodes of an older version would ignore it, the write is tried again
// until they are upgraded or the time is over. A refused write has changed nothing, so it can be repeated.

import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import type { Role } from '../access/roles.ts'
import { ProblemError } from '../problems/problem.ts'
import type { Lifecycle } from './node-health.ts'

/** Clients and proxies often give up after 30 s. */
export const WAIT_SECONDS_MAX = 20
const RETRY_MS = 500
const WRITERS: readonly (Role | 'open' | 'proxy')[] = ['editor', 'approver', 'admin']
const READS = ['GET', 'HEAD', 'OPTIONS']

/** Call before any route is added. */
export function waitForNodes(app: FastifyInstance, lifecycle: Lifecycle): void {
  app.addHook('onRoute', (route) => {
    const access = route.config?.access
    if (access === undefined || !WRITERS.includes(access) || READS.includes([route.method].flat()[0] ?? '')) return
    const { handler } = route
    route.handler = async function (request, reply) {
      const seconds = Number(/(?:^|[\s,;])wait=(\d{1,9})/.exec(String(request.headers.prefer ?? ''))?.[1] ?? 0)
      const endMs = performance.now() + 1000 * Math.min(seconds, WAIT_SECONDS_MAX)
      for (;;) {
        try {
          return await handler.call(this, request, reply)
        } catch (error) {
          const mayPass = error instanceof ProblemError && error.problem.code === 'NODES_OUTDATED'
          const isOver = performance.now() >= endMs || lifecycle.draining || reply.raw.destroyed
          if (!mayPass || isOver) throw error
          await sleep(RETRY_MS)
        }
      }
    }
  })
}
