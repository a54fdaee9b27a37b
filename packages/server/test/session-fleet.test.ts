// A session of the dashboard on a real fleet: one node of two processes, and another node on the same database.

import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { usePostgres } from './databases.ts'
import { type Running, start } from './process.ts'
import { ADMIN_TOKEN, RULES } from './service.ts'

const postgres = usePostgres()

const SESSION = '/api/v1/session'
const TOKENS = '/api/v1/admin/tokens'
/** New connections per node: enough that each of two workers answers some. */
const ATTEMPTS = 8
const PATIENTLY = { timeout: 30_000, interval: 200 }

type Answer = { readonly status: number; readonly body: Record<string, unknown>; readonly cookie: string }

/** Each call uses a new connection, so that the workers take turns. */
function call(url: string, headers: Record<string, string>, method = 'GET', body?: unknown): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const json = { 'content-type': 'application/json', connection: 'close' }
    const sent = request(url, { method, headers: { ...json, ...headers }, agent: false }, async (response) => {
      const [cookie = ''] = (response.headers['set-cookie']?.[0] ?? '').split(';', 1)
      const answer = await text(response)
      resolve({ status: response.statusCode ?? 0, body: answer === '' ? {} : JSON.parse(answer), cookie })
    })
    sent.once('error', reject)
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })
}

test('a session works on every process of every node and after a restart, and ends with its token on all', async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  const shared = ['--database', postgres().createDatabase(), '--redis', redis.url, '--admin-token', ADMIN_TOKEN]
  const patient = ['--store-deadline-ms', '5000', '--drain-ms', '0', '--events-sink', 'embedded=off']
  const startNode = (workers: number) => start([...shared, ...patient, '--workers', String(workers)])
  const first = await startNode(2)
  const second = await startNode(1)
  const admin = { authorization: `Bearer ${ADMIN_TOKEN}` }
  const { body: token } = await call(first.address + TOKENS, admin, 'POST', { name: 'ana', role: 'editor' })
  const known = async () => (await signIn(first, String(token.token))).status
  await expect.poll(known, PATIENTLY).toBe(200)
  const { cookie, body } = await signIn(first, String(token.token))
  const { csrf } = body.session as { csrf: string }

  /** Statuses of reads and of writes, over several connections to each node. */
  const statuses = async (nodes: readonly Running[]) => {
    const answers = nodes.flatMap(({ address }) =>
      Array.from({ length: ATTEMPTS }, async (_, index) => {
        if (index % 2 === 0) return call(address + RULES, { cookie })
        const dryRun = { rule_id: 'dry', limit: 1, window_seconds: 1 }
        return call(`${address}${RULES}?dry_run=true`, { cookie, 'x-sluice-csrf': csrf }, 'POST', dryRun)
      }),
    )
    return [...new Set((await Promise.all(answers)).map(({ status }) => status))]
  }

  await expect.poll(() => statuses([first, second]), PATIENTLY).toEqual([200])
  first.signal('SIGTERM')
  await first.ended()
  const restarted = await startNode(2)
  expect(await statuses([restarted, second])).toEqual([200])
  await call(`${second.address}${TOKENS}/${String(token.token_id)}`, admin, 'DELETE')
  await expect.poll(() => statuses([restarted, second]), PATIENTLY).toEqual([401])
  expect((await call(restarted.address + SESSION, { cookie })).body).toMatchObject({ session: null })
})

function signIn({ address }: Running, token: string): Promise<Answer> {
  return call(address + SESSION, { origin: address }, 'POST', { token })
}
