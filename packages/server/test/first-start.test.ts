import { beforeAll, expect, test } from 'vitest'
import { temporaryFolder } from './databases.ts'
import { buildOnce, type Running, start } from './process.ts'
import { CHECK, clientOf, RULES } from './service.ts'

beforeAll(buildOnce, 300_000)

const tokenIn = ({ output }: Running) => /^ {2}(sluice_\S+)$/m.exec(output().stdout)?.[1]

test('the first start prints an admin token, once, and on standard output only', { timeout: 60_000 }, async () => {
  const args = ['--data-dir', temporaryFolder()]
  const first = await start(args)
  const token = tokenIn(first)
  expect(token).toBeDefined()
  expect((await clientOf(first.address).get(RULES, token)).status).toBe(200)
  expect((await clientOf(first.address).get(RULES)).status).toBe(401)
  expect((await clientOf(first.address).post(CHECK, {})).status, 'checks are open on loopback').toBe(200)
  first.signal('SIGINT')
  expect((await first.ended()).stderr).not.toContain('sluice_')

  const second = await start(args)
  expect(tokenIn(second)).toBeUndefined()
  expect((await clientOf(second.address).get(RULES, token)).status).toBe(200)
})
