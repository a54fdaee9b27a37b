// Each framework warns once if it trusts proxies but the limiter is not configured to.

import 'reflect-metadata'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type CanActivate, Controller, Get, Module, UseGuards } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { ExpressAdapter, type NestExpressApplication } from '@nestjs/platform-express'
import { FastifyAdapter } from '@nestjs/platform-fastify'
import express from 'express'
import { fastify } from 'fastify'
import Koa from 'koa'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'

type Options = { limit: number; window: string; trustProxy?: string[] }
/** Serves one request, with the proxy setting of the framework on or off. */
type Send = (options: Options, trusts: boolean) => Promise<unknown>

let closed: (() => unknown)[] = []

beforeEach(() => {
  vi.resetModules() // each warning is emitted once per process
  vi.spyOn(process, 'emitWarning').mockImplementation(() => {})
})

afterEach(async () => {
  vi.restoreAllMocks()
  for (const close of closed) await close()
  closed = []
})

async function sendTo(server: Server): Promise<void> {
  closed.push(() => server.close())
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  await (await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)).text()
}

const FRAMEWORKS: Record<string, Send> = {
  express: async (options, trusts) => {
    const { rateLimit } = await import('sluice/express')
    const app = express()
    if (trusts) app.set('trust proxy', 1)
    app.use(rateLimit(options), (_req, res) => void res.send('hello'))
    await sendTo(createServer(app))
  },
  fastify: async (options, trusts) => {
    const { rateLimit } = await import('sluice/fastify')
    const app = fastify({ trustProxy: trusts })
    closed.push(() => app.close())
    app.get('/', { onRequest: rateLimit(options) }, () => 'hello')
    await app.inject('/')
  },
  koa: async (options, trusts) => {
    const { rateLimit } = await import('sluice/koa')
    const app = new Koa({ proxy: trusts })
    app.use(rateLimit(options))
    await sendTo(createServer(app.callback()))
  },
  'nest on express': async (options, trusts) => {
    const { rateLimit } = await import('sluice/nest')
    const app = await NestFactory.create<NestExpressApplication>(routed(rateLimit(options)), new ExpressAdapter(), {
      logger: false,
    })
    closed.push(() => app.close())
    if (trusts) app.set('trust proxy', 'loopback')
    await app.listen(0, '127.0.0.1')
    await (await fetch(await app.getUrl())).text()
  },
  'nest on fastify': async (options, trusts) => {
    const { rateLimit } = await import('sluice/nest')
    const adapter = new FastifyAdapter({ trustProxy: trusts })
    const app = await NestFactory.create(routed(rateLimit(options)), adapter, { logger: false })
    closed.push(() => app.close())
    await app.listen(0, '127.0.0.1')
    await (await fetch(await app.getUrl())).text()
  },
}

function routed(guard: object): new () => object {
  class Hello {
    hello(): string {
      return 'hello'
    }
  }
  Reflect.decorate([Controller(), UseGuards(guard as CanActivate)], Hello)
  const method = Object.getOwnPropertyDescriptor(Hello.prototype, 'hello') as PropertyDescriptor
  Reflect.decorate([Get()], Hello.prototype, 'hello', method)
  class App {}
  Reflect.decorate([Module({ controllers: [Hello] })], App)
  return App
}

const codes = () => vi.mocked(process.emitWarning).mock.calls.map(([, options]) => options)

test.each(Object.entries(FRAMEWORKS))('%s: one warning, unless trustProxy is set', async (_, send) => {
  const limit = { limit: 10, window: '1m' }
  await send(limit, false)
  await send({ ...limit, trustProxy: [] }, true)
  expect(codes()).toEqual([])
  await send(limit, true)
  await send(limit, true)
  expect(codes()).toEqual([{ code: 'SLUICE_APP_PROXY' }])
})
