// Two nodes just started on a machine without a free core, and more concurrent requests than the limit: the store
// decides every one of them. SLUICE_COLD_STARTS=50 repeats it 50 times.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { startRedis } from 'sluice/testing'
import { expect, onTestFinished, test } from 'vitest'
import { start } from './process.ts'
import { clientOf, ruleFile } from './service.ts'

const STARTS = Number(process.env.SLUICE_COLD_STARTS ?? 2)
const CHECKS = 200
const LIMIT = 6
const RULES = `- { rule_id: six, limit: ${LIMIT}, window: 365d, scope: per_user, algorithm: fixed_window }`

/** A Redis that gets no processor for 100 ms misses the deadline for real. Such a run proves nothing. */
const OPTIONS = { timeout: 60_000 * STARTS, retry: 2 }

test('a cold start admits exactly the limit, next to two busy loops', OPTIONS, async () => {
  const redis = await startRedis()
  onTestFinished(() => redis.stop())
  busyLoop()
  busyLoop()
  const args = ['--redis', redis.url, '--rules', ruleFile(RULES)]
  const seen: Record<string, number>[] = []
  for (let number = 0; number < STARTS; number += 1) {
    const nodes = await Promise.all([start(args), start(args)])
    const asked = nodes.flatMap(({ address }) => {
      const client = clientOf(address)
      return Array.from({ length: CHECKS }, () => client.check({ client_id: `start ${number}`, detail: true }))
    })
    const answers = await Promise.all(asked)
    seen.push(countedBy(answers.map(({ allowed, source }) => `${allowed ? 'admitted' : 'refused'} by ${source}`)))
    for (const node of nodes) node.signal('SIGINT')
    await Promise.all(nodes.map((node) => node.ended()))
  }
  const admitted = seen.map((counts) => totalOf(counts, 'admitted'))
  expect(admitted, JSON.stringify(seen)).toEqual(seen.map(() => LIMIT))
})

function busyLoop(): void {
  const child = spawn(process.execPath, ['-e', 'for (;;);'])
  onTestFinished(async () => {
    child.kill('SIGKILL')
    await once(child, 'close')
  })
}

function countedBy(names: readonly string[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}

function totalOf(counts: Readonly<Record<string, number>>, prefix: string): number {
  return Object.entries(counts).reduce((total, [name, count]) => total + (name.startsWith(prefix) ? count : 0), 0)
}
