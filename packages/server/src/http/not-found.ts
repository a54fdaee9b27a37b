// Requests without a route: 405 with the allowed methods, or 404 with the nearest path.

import type { FastifyInstance } from 'fastify'
import { nearest } from 'sluice'
import { type Problem, problem } from '../problems/problem.ts'
import { sendProblem } from '../problems/send-problem.ts'
import type { SendPage } from './routes/dashboard.ts'

type Known = { readonly methods: Set<string>; readonly pattern: RegExp }

/** Call before any route is added: it records them. `sendPage` answers browsers, whose pages have no routes. */
export function handleUnknownRoutes(app: FastifyInstance, sendPage: SendPage): void {
  const routes = new Map<string, Known>()
  app.addHook('onRoute', ({ url, method }) => {
    const known = routes.get(url) ?? { methods: new Set<string>(), pattern: patternOf(url) }
    for (const one of [method].flat()) known.methods.add(one)
    routes.set(url, known)
  })
  app.setNotFoundHandler((request, reply) => {
    if (sendPage(request, reply)) return reply
    const [path = ''] = request.url.split('?', 1)
    const allowed = [...routes.values()].find(({ pattern }) => pattern.test(path))?.methods
    if (allowed === undefined) return sendProblem(reply, unknownPath(path, [...routes.keys()]))
    reply.header('allow', [...allowed].join(', '))
    return sendProblem(reply, problem('METHOD_NOT_ALLOWED', `${path} answers ${[...allowed].join(', ')} only.`))
  })
}

function unknownPath(path: string, paths: readonly string[]): Problem {
  const meant = nearest(path.replace(/\/$/, ''), paths)
  const hint = meant === undefined ? 'GET / lists all routes' : `did you mean ${meant}?`
  const fieldError = { field: 'path', value: path, fix: hint }
  return problem('NOT_FOUND', `Unknown path; ${hint}`, [fieldError])
}

/** Paths of this service consist of letters, slashes, dots and parameters. */
function patternOf(url: string): RegExp {
  return new RegExp(`^${url.replaceAll('.', '\\.').replace(/:\w+/g, '[^/]+')}$`)
}
