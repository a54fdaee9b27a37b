// /openapi.json: made from the very schemas that validate requests, so that the two cannot differ. And `/`, for people
// who open the address in a browser.

import swagger from '@fastify/swagger'
import type { FastifyInstance, FastifySchema } from 'fastify'
import type { Access } from '../../access/roles.ts'
import { VERSION } from '../../package-facts.ts'
import { answers, BATCH_BODY, CHECK_ANSWER, CHECK_BODY, PROBLEM, problemAnswers } from '../bodies/schemas.ts'
import { BATCH_PATH } from './batch.ts'
import { JSON_TYPE } from './check.ts'

type Described = { readonly summary: string; readonly 'x-role': Access }
type RouteNote = { readonly route: string; readonly role: Access; readonly summary: string }

/** Before the routes: it takes note of them as they come. */
export async function describeRoutes(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Sluice',
        version: VERSION,
        description: 'A distributed rate limiter: ask it before you serve a request.',
        license: { name: 'MIT', identifier: 'MIT' },
      },
      tags: [
        { name: 'checks', description: 'Deciding about requests' },
        { name: 'rules', description: 'What is enforced' },
        { name: 'health', description: 'How the service is' },
        { name: 'insight', description: 'What was decided, and why' },
        { name: 'admin', description: 'Running the service' },
      ],
      components: {
        securitySchemes: {
          token: {
            type: 'http',
            scheme: 'bearer',
            description: 'An API token; every operation tells the role it needs.',
          },
        },
      },
    },
    // Items of a batch are validated one by one, so its own schema says nothing about them.
    transform: ({ schema, url, route }) => {
      const described = url === BATCH_PATH ? withItems(schema) : schema
      return { schema: withShared(described, [route.method].flat(), route.config?.access), url }
    },
    refResolver: { buildLocalReference: ({ $id }) => String($id) },
  })
  app.addSchema(PROBLEM)
  app.addSchema(CHECK_ANSWER)
}

/** Adds what routes do not answer themselves: the guard, the validation and the parsers of bodies do. */
function withShared(schema: FastifySchema, methods: readonly string[], access: Access = 'open'): FastifySchema {
  const { body, querystring, params } = schema
  const takesBody = !methods.includes('GET') && access !== 'proxy' // bodies that proxies pass on are ignored
  const statuses = [
    ...(takesBody || [body, querystring, params].some((input) => input !== undefined) ? [400] : []),
    ...(takesBody ? [413, 415] : []),
    ...(access === 'proxy' ? [] : [401, 429]), // wrong tokens are refused where none is needed, too
    ...(access === 'open' || access === 'proxy' ? [] : [403]),
  ]
  const described = {
    ...schema,
    'x-role': access,
    response: { ...(schema.response as object), ...problemAnswers(...statuses) },
  }
  if (access === 'open' || access === 'proxy') return described as FastifySchema
  // Checks may be open to everybody, which depends on where the service listens.
  const security = access === 'check' ? [{}, { token: [] }] : [{ token: [] }]
  return { ...described, security } as FastifySchema
}

function withItems(schema: FastifySchema): FastifySchema {
  const { checks } = BATCH_BODY.properties
  return { ...schema, body: { ...(schema.body as object), properties: { checks: { ...checks, items: CHECK_BODY } } } }
}

export function openapiRoutes(app: FastifyInstance): void {
  let made: string | undefined
  const document = () => {
    made ??= JSON.stringify(app.swagger())
    return made
  }
  const config = { access: 'open' as const }
  const any = { type: 'object', additionalProperties: true }
  const openapi = { operationId: 'openapi', summary: 'This description', tags: ['health'], response: answers(any) }
  app.get('/openapi.json', { schema: openapi, config }, (_request, reply) => {
    reply.header('content-type', JSON_TYPE).send(document())
  })
  const index = { operationId: 'index', summary: 'All routes', tags: ['health'], response: answers(any) }
  app.get('/', { schema: index, config }, () => {
    return { service: 'sluice', version: VERSION, documentation: '/openapi.json', routes: routesIn(document()) }
  })
}

/** Every route with the role that it needs, from the same description that programs read. */
function routesIn(document: string): readonly RouteNote[] {
  const { paths } = JSON.parse(document) as { paths: Record<string, Record<string, Described>> }
  return Object.entries(paths).flatMap(([path, operations]) => {
    return Object.entries(operations).map(([method, { summary, 'x-role': role }]) => {
      return { route: `${method.toUpperCase()} ${path}`, role, summary }
    })
  })
}
