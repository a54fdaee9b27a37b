import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { temporaryFolder } from './databases.ts'
import { type Running, start } from './process.ts'
import { CHECK, clientOf, RULES } from './service.ts'

const tokenIn = ({ output }: Running) => /^ {2}(sluice_\S+)$/m.exec(output().stdout)?.[1]

/** 210 to 235 MB after a minute; up to 265 MB before the first garbage collection. */
const IDLE_MB_MAX = 300

const residentMb = ({ pid }: Running) => {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kilobytes) / 1024
}

function expectSmall(service: Running): void {
  if (process.platform === 'linux') expect(residentMb(service)).toBeLessThan(IDLE_MB_MAX)
}

// One test, because a first start creates a database, which takes five seconds of CPU time.
test('the first start prints an admin token once, on standard output only; each start is small', async () => {
  const args = ['--data-dir', temporaryFolder()]
  const first = await start(args)
  const token = tokenIn(first)
  expect(token).toBeDefined()
  expect((await clientOf(first.address).get(RULES, token)).status).toBe(200)
  expect((await clientOf(first.address).get(RULES)).status).toBe(401)
  expect((await clientOf(first.address).post(CHECK, {})).status, 'checks are open on loopback').toBe(200)
  expectSmall(first)
  first.signal('SIGINT')
  expect((await first.ended()).stderr).not.toContain('sluice_')

  const second = await start(args)
  expect(tokenIn(second)).toBeUndefined()
  expect((await clientOf(second.address).get(RULES, token)).status).toBe(200)
  expect((await clientOf(second.address).post(CHECK, {})).status).toBe(200)
  expectSmall(second)
}, 180_000)
