// Every framework that has a middleware, as a real server with its own router: the same routes, the same answers,
// behind the same options. What a suite says of one, it says of all.

import 'reflect-metadata'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { getRequestListener } from '@hono/node-server'
import Router from '@koa/router'
import { All, Controller, Module, Req, Res, UseGuards } from '@nestjs/common'
import { type AbstractHttpAdapter, NestFactory } from '@nestjs/core'
import { ExpressAdapter } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from 'express'
import { type FastifyServerOptions, fastify } from 'fastify'
import { type Context, Hono } from 'hono'
import Koa from 'koa'
import type { Decision } from 'sluice'
import { rateLimit as expressLimit, type ExpressRequest as Limited } from 'sluice/express'
import { rateLimit as fastifyLimit, rateLimitPlugin } from 'sluice/fastify'
import { rateLimit as fetchLimit } from 'sluice/fetch'
import { rateLimit as honoLimit } from 'sluice/hono'
import { rateLimit as koaLimit } from 'sluice/koa'
import { rateLimit as nestLimit } from 'sluice/nest'
import { rateLimit as nodeLimit } from 'sluice/node'
import type { RateLimitOptions } from '../../src/middleware/options.ts'

/** Options whose functions take whatever request the framework hands them. */
export type Options = RateLimitOptions<unknown>

export type Answer = { readonly status: number; readonly body: string | Readable }

/** What a route answers; it may throw. The decision is undefined where the framework has no place for it. */
export type Handler = (path: string, decision: Decision | undefined) => Answer

/** Routes by the pattern that all routers understand: `/login`, `/files/:name`. */
export type Routes = Readonly<Record<string, Handler>>

export type Framework = {
  readonly name: string
  /** A server on a free port of 127.0.0.1, with the middlewares in this order; some may stand there twice. */
  serve(limits: readonly Options[], routes: Routes): Promise<Server>
  /** A header of whatever the options' functions get. */
  readonly headerOf: (request: never, name: string) => string | undefined
  /** Whether handlers can see the decision. */
  readonly tells: boolean
  /** Whether requests that no route is for are judged too. */
  readonly judgesUnrouted: boolean
  /** Whether what is registered is a middleware, and can be registered again, or options. */
  readonly registersOptions?: boolean
}

const nodeHeader = (request: IncomingMessage, name: string) => request.headers[name]?.toString()

/** The same options are one middleware: registered twice, it is the same function twice. */
function oneEach<T>(make: (options: Options) => T): (options: Options) => T {
  const made = new Map<Options, T>()
  return (options) => {
    const known = made.get(options) ?? make(options)
    made.set(options, known)
    return known
  }
}

function answerOnNode(res: ServerResponse, { status, body }: Answer): void {
  res.statusCode = status
  if (typeof body === 'string') res.end(body)
  else body.pipe(res)
}

function answerOnWeb({ status, body }: Answer): Response {
  return new Response(typeof body === 'string' ? body : (Readable.toWeb(body) as ReadableStream), { status })
}

async function listening(server: Server): Promise<Server> {
  if (!server.listening) await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

type ExpressModule = typeof express

function expressFramework(name: string, make: ExpressModule): Framework {
  return {
    name,
    tells: true,
    judgesUnrouted: true,
    headerOf: nodeHeader,
    serve(limits, routes) {
      const app = make()
      const limited = oneEach((options) => expressLimit(options))
      for (const options of limits) app.use(limited(options))
      for (const [path, handle] of Object.entries(routes)) {
        app.all(path, (req: ExpressRequest, res: ExpressResponse) => answerOnNode(res, handle(req.path, req.rateLimit)))
      }
      return listening(createServer(app))
    },
  }
}

/** The types of Fastify 5 do not know the last one, its router does. */
type RouterOptions = NonNullable<FastifyServerOptions['routerOptions']> & { readonly useSemicolonDelimiter?: boolean }

function fastifyFramework(name: string, plugin: boolean, routerOptions: RouterOptions = {}): Framework {
  return {
    name,
    tells: true,
    judgesUnrouted: true,
    registersOptions: plugin,
    headerOf: (request: { raw: IncomingMessage }, header) => nodeHeader(request.raw, header),
    async serve(limits, routes) {
      const app = fastify({ routerOptions })
      const limited = oneEach((options) => fastifyLimit(options))
      for (const options of limits) {
        if (plugin) app.register(rateLimitPlugin, options)
        else app.addHook('onRequest', limited(options))
      }
      for (const [path, handle] of Object.entries(routes)) {
        app.all(path, (request, reply) => {
          const { status, body } = handle(request.url, request.rateLimit)
          return reply.code(status).send(body)
        })
      }
      await app.listen({ port: 0, host: '127.0.0.1' })
      return app.server
    },
  }
}

const koa: Framework = {
  name: 'Koa',
  tells: true,
  judgesUnrouted: true,
  headerOf: (ctx: Koa.Context, name) => ctx.get(name) || undefined,
  serve(limits, routes) {
    const app = new Koa()
    app.silent = true
    const limited = oneEach((options) => koaLimit<Koa.Context>(options))
    for (const options of limits) app.use(limited(options))
    const router = new Router()
    for (const [path, handle] of Object.entries(routes)) {
      router.all(path, (ctx) => {
        Object.assign(ctx, handle(ctx.path, ctx.state.rateLimit))
      })
    }
    app.use(router.routes())
    return listening(createServer(app.callback()))
  },
}

function honoFramework(name: string, strict: boolean): Framework {
  return {
    name,
    tells: true,
    judgesUnrouted: true,
    headerOf: (context: Context, header) => context.req.header(header),
    serve(limits, routes) {
      const app = new Hono({ strict })
      const limited = oneEach((options) => honoLimit(options))
      for (const options of limits) app.use(limited(options))
      for (const [path, handle] of Object.entries(routes)) {
        app.all(path, (context) => answerOnWeb(handle(context.req.path, context.get('rateLimit'))))
      }
      app.onError(() => new Response('', { status: 500 }))
      return listening(createServer(getRequestListener(app.fetch)))
    },
  }
}

const fetchHandler: Framework = {
  name: 'fetch handler',
  tells: false,
  judgesUnrouted: true,
  headerOf: (request: Request, name) => request.headers.get(name) ?? undefined,
  serve(limits, routes) {
    const find = plainRouter(routes)
    let handler = async (request: Request, _env: object): Promise<Response> => {
      try {
        const { pathname } = new URL(request.url)
        return answerOnWeb(find(pathname)?.(pathname, undefined) ?? { status: 404, body: '' })
      } catch {
        return answerOnWeb({ status: 500, body: '' })
      }
    }
    const limited = oneEach((options) => fetchLimit(options))
    for (const options of limits.toReversed()) handler = limited(options)(handler)
    const failed = () => new Response('', { status: 500 })
    const listener = getRequestListener((request, env) => handler(request, env).catch(failed))
    return listening(createServer(listener))
  },
}

const nodeHttp: Framework = {
  name: 'node:http',
  tells: false,
  judgesUnrouted: true,
  headerOf: nodeHeader,
  serve(limits, routes) {
    const find = plainRouter(routes)
    let listener = async (req: IncomingMessage, res: ServerResponse): Promise<unknown> => {
      try {
        const { pathname } = new URL(req.url?.startsWith('/') ? `http://host${req.url}` : (req.url ?? '/'))
        return answerOnNode(res, find(pathname)?.(pathname, undefined) ?? { status: 404, body: '' })
      } catch {
        return answerOnNode(res, { status: 500, body: '' })
      }
    }
    const limited = oneEach((options) => nodeLimit(options))
    for (const options of limits.toReversed()) {
      const inner = listener
      listener = async (req, res) => limited(options)(inner)(req, res)
    }
    return listening(createServer(listener))
  },
}

type NestRequest = Limited & { readonly url: string; readonly raw?: IncomingMessage }
type NestResponse = ServerResponse & { readonly raw?: undefined }
type NestReply = { readonly raw: ServerResponse; code(status: number): { send(body: unknown): unknown } }

function nestFramework(name: string, adapter: () => AbstractHttpAdapter): Framework {
  return {
    name,
    tells: true,
    judgesUnrouted: false,
    headerOf: (request: IncomingMessage, header) => nodeHeader(request, header),
    async serve(limits, routes) {
      class Routed {}
      // What decorators do, without their syntax: the sources here are TypeScript that can be erased.
      for (const [path, handle] of Object.entries(routes)) {
        const method = (req: NestRequest, res: NestResponse | NestReply) => {
          const answer = handle(req.url.replace(/\?.*/, ''), req.rateLimit)
          if (res.raw === undefined) answerOnNode(res, answer)
          else res.code(answer.status).send(answer.body)
        }
        const descriptor = { value: method }
        Object.defineProperty(Routed.prototype, path, descriptor)
        Req()(Routed.prototype, path, 0)
        Res()(Routed.prototype, path, 1)
        All(path)(Routed.prototype, path, descriptor)
      }
      const limited = oneEach((options) => nestLimit(options))
      UseGuards(...limits.map(limited))(Routed)
      Controller()(Routed)
      class App {}
      Module({ controllers: [Routed] })(App)
      const app = await NestFactory.create(App, adapter(), { logger: false, abortOnError: false })
      await app.listen(0, '127.0.0.1')
      return app.getHttpServer() as Server
    },
  }
}

/** Where there is no router of a framework: paths are compared as they are, and a name is a segment. */
function plainRouter(routes: Routes): (pathname: string) => Handler | undefined {
  const patterns = Object.entries(routes).map(
    ([path, handle]) => [new RegExp(`^${path.replace(/:\w+/g, '[^/]+')}$`), handle] as const,
  )
  return (pathname) => patterns.find(([pattern]) => pattern.test(pathname))?.[1]
}

const express4 = createRequire(import.meta.url)('express4') as ExpressModule

export const FRAMEWORKS: readonly Framework[] = [
  expressFramework('Express 4', express4),
  expressFramework('Express 5', express),
  fastifyFramework('Fastify', false),
  fastifyFramework('Fastify plugin', true),
  koa,
  honoFramework('Hono', true),
  nestFramework('NestJS', () => new ExpressAdapter()),
  nestFramework('NestJS on Fastify', () => new FastifyAdapter()),
  fetchHandler,
  nodeHttp,
]

/** The same with options that make routers take more targets for a route. */
export const LENIENT: readonly Framework[] = [
  fastifyFramework('Fastify, `ignoreTrailingSlash`', false, { ignoreTrailingSlash: true }),
  fastifyFramework('Fastify, `ignoreDuplicateSlashes`', false, { ignoreDuplicateSlashes: true }),
  fastifyFramework('Fastify, all lenient options', false, {
    ignoreTrailingSlash: true,
    ignoreDuplicateSlashes: true,
    caseSensitive: false,
    useSemicolonDelimiter: true,
  }),
  honoFramework('Hono, `strict: false`', false),
]

export function urlOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Whatever started it: its listener and its connections go, and that is all there is of any of them. */
export async function stop(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}
