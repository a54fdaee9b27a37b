// Every framework with a middleware, as a real server with its own router, and the same routes and options, so that one
// suite covers them all.

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

/** Options whose functions accept the request of any framework. */
export type Options = RateLimitOptions<unknown>

export type Answer = { readonly status: number; readonly body: string | Readable }

/** Handler of a route; may throw. The decision is undefined if the framework cannot pass it on. */
export type Handler = (path: string, decision: Decision | undefined) => Answer

/** Routes by pattern, in the syntax common to all routers: `/login`, `/files/:name`. */
export type Routes = Readonly<Record<string, Handler>>

export type Framework = {
  readonly name: string
  /** Starts a server on a free port of 127.0.0.1, with the middlewares in this order, possibly repeated. */
  serve(limits: readonly Options[], routes: Routes): Promise<Server>
  /** Reads a header of the request that the functions of the options get. */
  readonly headerOf: (request: never, name: string) => string | undefined
  /** Whether handlers can read the decision. */
  readonly passesDecision: boolean
  /** Whether requests without a matching route are checked. */
  readonly checksUnrouted: boolean
  /** Whether options are registered instead of a middleware, which could be registered again. */
  readonly registersOptions?: boolean
}

const nodeHeader = (request: IncomingMessage, name: string) => request.headers[name]?.toString()

/** Creates one middleware per options object, so that repeated options register the same function. */
function oneEach<T>(make: (options: Options) => T): (options: Options) => T {
  const made = new Map<Options, T>()
  return (options) => {
    const known = made.get(options) ?? make(options)
    made.set(options, known)
    return known
  }
}

function sendOnNode(res: ServerResponse, { status, body }: Answer): void {
  res.statusCode = status
  if (typeof body === 'string') res.end(body)
  else body.pipe(res)
}

function webResponse({ status, body }: Answer): Response {
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
    passesDecision: true,
    checksUnrouted: true,
    headerOf: nodeHeader,
    serve(limits, routes) {
      const app = make()
      const limited = oneEach((options) => expressLimit(options))
      for (const options of limits) app.use(limited(options))
      for (const [path, handle] of Object.entries(routes)) {
        app.all(path, (req: ExpressRequest, res: ExpressResponse) => sendOnNode(res, handle(req.path, req.rateLimit)))
      }
      return listening(createServer(app))
    },
  }
}

/** The last option is missing from the types of Fastify 5, but its router supports it. */
type RouterOptions = NonNullable<FastifyServerOptions['routerOptions']> & { readonly useSemicolonDelimiter?: boolean }

function fastifyFramework(name: string, plugin: boolean, routerOptions: RouterOptions = {}): Framework {
  return {
    name,
    passesDecision: true,
    checksUnrouted: true,
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
  passesDecision: true,
  checksUnrouted: true,
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
    passesDecision: true,
    checksUnrouted: true,
    headerOf: (context: Context, header) => context.req.header(header),
    serve(limits, routes) {
      const app = new Hono({ strict })
      const limited = oneEach((options) => honoLimit(options))
      for (const options of limits) app.use(limited(options))
      for (const [path, handle] of Object.entries(routes)) {
        app.all(path, (context) => webResponse(handle(context.req.path, context.get('rateLimit'))))
      }
      app.onError(() => new Response('', { status: 500 }))
      return listening(createServer(getRequestListener(app.fetch)))
    },
  }
}

const fetchHandler: Framework = {
  name: 'fetch handler',
  passesDecision: false,
  checksUnrouted: true,
  headerOf: (request: Request, name) => request.headers.get(name) ?? undefined,
  serve(limits, routes) {
    const find = plainRouter(routes)
    let handler = async (request: Request, _env: object): Promise<Response> => {
      try {
        const { pathname } = new URL(request.url)
        return webResponse(find(pathname)?.(pathname, undefined) ?? { status: 404, body: '' })
      } catch {
        return webResponse({ status: 500, body: '' })
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
  passesDecision: false,
  checksUnrouted: true,
  headerOf: nodeHeader,
  serve(limits, routes) {
    const find = plainRouter(routes)
    let listener = async (req: IncomingMessage, res: ServerResponse): Promise<unknown> => {
      try {
        const { pathname } = new URL(req.url?.startsWith('/') ? `http://host${req.url}` : (req.url ?? '/'))
        return sendOnNode(res, find(pathname)?.(pathname, undefined) ?? { status: 404, body: '' })
      } catch {
        return sendOnNode(res, { status: 500, body: '' })
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
    passesDecision: true,
    checksUnrouted: false,
    headerOf: (request: IncomingMessage, header) => nodeHeader(request, header),
    async serve(limits, routes) {
      class Routed {}
      // Applies decorators without their syntax, which is not erasable.
      for (const [path, handle] of Object.entries(routes)) {
        const method = (req: NestRequest, res: NestResponse | NestReply) => {
          const answer = handle(req.url.replace(/\?.*/, ''), req.rateLimit)
          if (res.raw === undefined) sendOnNode(res, answer)
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

/** Minimal router for handlers without a framework: literal paths, and one segment per name. */
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

/** The same frameworks with the most lenient router options. */
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

/** Closes the listener and its connections, whichever framework started it. */
export async function stop(server: Server): Promise<void> {
  const closed = once(server, 'close')
  server.close()
  server.closeAllConnections()
  await closed
}
