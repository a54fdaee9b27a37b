// A NestJS application: 5 requests per minute and client address, at most 2 of them to /search.

import 'reflect-metadata'
import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Controller, Get, Module, UseGuards } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { rateLimit } from 'sluice/nest'

@Controller()
class AppController {
  @Get()
  hello(): string {
    return 'hello\n'
  }

  @Get('search')
  @UseGuards(rateLimit({ name: 'search', limit: 2, window: '1m' }))
  search(): string {
    return 'found\n'
  }
}

@Module({ controllers: [AppController] })
class AppModule {}

const app = await NestFactory.create(AppModule, { logger: ['error'] })
app.useGlobalGuards(rateLimit({ limit: 5, window: '1m' }))
await app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1')
const server: Server = app.getHttpServer()
console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
