// /openapi.json, generated from the schemas that validate requests, and `/`: the dashboard for browsers, an
// overview as JSON for all other clients.

import swagger from '@fastify/swagger'
import type { FastifyInstance, FastifySchema } from 'fastify'
import type { Access } from '../../access/roles.ts'
import { VERSION } from '../../package-facts.ts'
import { answers, BATCH_BODY, CHECK_ANSWER, CHECK_BODY, PROBLEM, problemAnswers } from '../bodies/schemas.ts'
import { BATCH_PATH } from './batch.ts'
import { JSON_TYPE } from './check.ts'
import type { SendPage } from './dashboard.ts'

type Described = { readonly summary: string; readonly 'x-role': Access }
type RouteNote = { readonly route: string; readonly role: Access; readonly summary: string }

/** Call before any route is added: it records them. */
export async function describeRoutes(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Sluice',
        version: VERSION,
        description: 'Distributed rate limiter: check requests before you serve them.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      tags: [
        { name: 'checks', description: 'Deciding about requests' },
        { name: 'rules', description: 'Rules' },
        { name: 'exceptions', description: 'Overrides, bypass tokens and abuse signals' },
        { name: 'health', description: 'Health and metrics' },
        { name: 'insight', description: 'Decisions and their reasons' },
        { name: 'admin', description: 'Administration' },
      ],
      components: {
        securitySchemes: {
          token: {
            type: 'http',
            scheme: 'bearer',
            description: 'API token. Every operation names the role that it requires.',
          },
        },
      },
    },
    // Items of a batch are validated one by one: their schema is added here.
    transform: ({ schema, url, route }) => {
      const described = url === BATCH_PATH ? withItems(schema) : schema
      return { schema: withShared(described, [route.method].flat(), route.config?.access), url }
    },
    refResolver: { buildLocalReference: ({ $id }) => String($id) },
  })
  app.addSchema(PROBLEM)
  app.addSchema(CHECK_ANSWER)
}

/** Adds the responses of the guard, the validation and the body parsers. */
function withShared(schema: FastifySchema, methods: readonly string[], access: Access = 'open'): FastifySchema {
  const { body, querystring, params } = schema
  const takesBody = !methods.includes('GET') && access !== 'proxy' // bodies that proxies pass on are ignored
  const statuses = [
    ...(takesBody || [body, querystring, params].some((input) => input !== undefined) ? [400] : []),
    ...(takesBody ? [413, 415] : []),
    ...(access === 'proxy' ? [] : [401, 429]), // invalid tokens are rejected even where none is needed
    ...(access === 'open' || access === 'proxy' ? [] : [403]),
  ]
  const described = {
    ...schema,
    'x-role': access,
    response: { ...(schema.response as object), ...problemAnswers(...statuses) },
  }
  if (access === 'open' || access === 'proxy') return described as FastifySchema
  // Whether checks need a token depends on the listening address.
  const security = access === 'check' ? [{}, { token: [] }] : [{ token: [] }]
  return { ...described, security } as FastifySchema
}

function withItems(schema: FastifySchema): FastifySchema {
  const { checks } = BATCH_BODY.properties
  return { ...schema, body: { ...(schema.body as object), properties: { checks: { ...checks, items: CHECK_BODY } } } }
}

export function openapiRoutes(app: FastifyInstance, sendPage: SendPage): void {
  let json: string | undefined
  const document = () => {
    json ??= JSON.stringify(app.swagger())
    return json
  }
  const config = { access: 'open' as const }
  const any = { type: 'object', additionalProperties: true }
  const openapi = { operationId: 'openapi', summary: 'OpenAPI description', tags: ['health'], response: answers(any) }
  app.get('/openapi.json', { schema: openapi, config }, (_request, reply) => {
    reply.header('content-type', JSON_TYPE).send(document())
  })
  const index = { operationId: 'index', summary: 'All routes', tags: ['health'], response: answers(any) }
  app.get('/', { schema: index, config }, (request, reply) => {
    if (sendPage(request, reply)) return reply
    reply.header('vary', 'accept')
    return { service: 'sluice', version: VERSION, documentation: '/openapi.json', routes: routesIn(document()) }
  })
}

/** Every route with its role, from the generated description. */
function routesIn(document: string): readonly RouteNote[] {
  const { paths } = JSON.parse(document) as { paths: Record<string, Record<string, Described>> }
  return Object.entries(paths).flatMap(([path, operations]) => {
    return Object.entries(operations).map(([method, { summary, 'x-role': role }]) => {
      return { route: `${method.toUpperCase()} ${path}`, role, summary }
    })
  })
}
