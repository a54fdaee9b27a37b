// Compiled, never run: functions of the options get the context of Koa without an annotation, and middlewares after
// this one get the decision.

import Router from '@koa/router'
import Koa, { type ParameterizedContext } from 'koa'
import { createLimiter, type Decision } from 'sluice'
import { rateLimit } from 'sluice/koa'

const limit = { limit: 100, window: '1m' }
const limiter = createLimiter({ rules: [] })
const app = new Koa()
const router = new Router()
const typed = new Koa<{ user: { id: string } }, { tenant: string }>()

app.use(rateLimit({ ...limit, key: (ctx) => ctx.get('x-api-key'), skip: (ctx) => ctx.path === '/health' }))
app.use(rateLimit({ limiter, subject: async (ctx) => ({ user: ctx.cookies.get('user'), tenant: ctx.hostname }) }))
router.get('/:id', rateLimit({ ...limit, key: (ctx) => ctx.params.id }), (ctx) => {
  const id: string | undefined = ctx.params.id
  ctx.body = id
})
typed.use(rateLimit({ ...limit, key: (ctx) => ctx.tenant + ctx.state.user.id })).use((ctx) => {
  const decision: Decision | undefined = ctx.state.rateLimit
  ctx.body = `${ctx.tenant} ${ctx.state.user.id} ${decision?.remaining}`
})

const stored = rateLimit({ ...limit, key: (ctx) => ctx.ip })
app.use(stored).use((ctx) => {
  ctx.body = `${ctx.state.rateLimit?.remaining}`
})
typed.use(stored)
router.use(stored)

type NamedState = { user: { id: string } }
interface NamedByInterface {
  user: { id: string }
}
const named = (ctx: ParameterizedContext<NamedState>) => ctx.state.user.id
const namedByInterface = (ctx: ParameterizedContext<NamedByInterface>) => ctx.state.user.id
new Koa<NamedState>().use(rateLimit({ ...limit, key: named })).use((ctx) => {
  ctx.body = `${ctx.state.user.id} ${ctx.state.rateLimit?.remaining}`
})
new Koa<NamedByInterface>().use(rateLimit({ ...limit, key: namedByInterface })).use((ctx) => {
  ctx.body = `${ctx.state.user.id} ${ctx.state.rateLimit?.remaining}`
})
const subject = (ctx: ParameterizedContext<NamedByInterface>) => ({ user: ctx.state.user.id })
new Koa<NamedByInterface>().use(rateLimit({ limiter, subject }))

// @ts-expect-error: requests have no such property
app.use(rateLimit({ ...limit, key: (ctx) => ctx.request.nothing }))
// @ts-expect-error: the state has no such property
typed.use(stored).use((ctx) => ctx.state.nothing)
