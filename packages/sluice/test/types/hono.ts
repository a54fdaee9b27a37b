// Compiled, never run: functions of the options get the context of Hono, with the variables that the application
// declares for all its routes, and handlers after the middleware keep theirs.

import { type Context, Hono } from 'hono'
import { createLimiter } from 'sluice'
import { rateLimit } from 'sluice/hono'

declare module 'hono' {
  interface ContextVariableMap {
    session: { id: string }
  }
}

type AppEnv = { Bindings: { ADDRESS: string }; Variables: { user: { id: string } } }

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const app = new Hono()
const typed = new Hono<AppEnv>()

app.use(rateLimit({ ...limit, key: (c) => c.req.header('x-api-key'), skip: (c) => c.req.path === '/health' }))
app.use(rateLimit({ limiter, subject: async (c) => ({ user: c.get('session').id }), ip: (c) => c.env.ADDRESS }))
app.get('/:id', rateLimit({ ...limit, key: (c) => c.req.param('id') }), (c) => {
  const id: string = c.req.param('id')
  return c.text(`${id} ${c.get('rateLimit')?.remaining} ${c.var.rateLimit?.remaining}`)
})
typed.use(rateLimit<AppEnv>({ ...limit, key: (c) => c.get('user').id, ip: (c) => c.env.ADDRESS }))
typed.use(rateLimit({ ...limit, key: (c: Context<AppEnv>) => c.var.user.id }))

const stored = rateLimit({ ...limit, key: (c) => c.req.header('x-api-key') })
app.use('/a/*', stored)
typed.get('/:id', stored, (c) => {
  const id: string = c.req.param('id')
  return c.text(id + c.get('user').id)
})

// @ts-expect-error: the context has no such property
app.use(rateLimit({ ...limit, key: (c) => c.nothing }))
// @ts-expect-error: a declared variable has its type
app.use(rateLimit({ ...limit, key: (c) => c.get('session') }))
// @ts-expect-error: the application has no such variable
typed.use(rateLimit<AppEnv>({ ...limit, key: (c) => c.get('nothing') }))
// @ts-expect-error: the application has no such binding
typed.use(rateLimit<AppEnv>({ ...limit, key: (c) => c.env.NOTHING }))
