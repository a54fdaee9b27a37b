// Runs the fleet for a few seconds: the guarantees hold, the exit code is 0, and no temporary folder is left.

import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { readOptions } from './options.ts'

const TIMEOUT_MS = 180_000
/** Drift and recovery depend on the CPU time that this run gets. share.test.ts asserts drift on virtual time. */
const NEEDS_IDLE_MACHINE = /BROKEN +(drift of|after a primary)/

type Ended = { readonly code: number | null; readonly output: string; readonly left: readonly string[] }

/** Runs a command with its own temporary folder until it exits. */
function run(script: string, args: readonly string[]): Ended {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-fleet-test-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  const env = { ...process.env, TMPDIR: folder }
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { env, encoding: 'utf8' })
  return { code: status, output: `${stdout}${stderr}`, left: readdirSync(folder) }
}

test('two regions stay within a shared limit while a primary is killed, and leave no folder', {
  timeout: TIMEOUT_MS,
}, () => {
  const { code, output, left } = run('scripts/fleet.mjs', ['--seconds', '8', '--nodes', '1', '--rate', '150'])
  const broken = output.match(/BROKEN.*/g) ?? []
  expect(
    broken.filter((line) => !NEEDS_IDLE_MACHINE.test(line)),
    output,
  ).toEqual([])
  expect(output).toContain('after a primary of eu was killed, its slots recovered within')
  expect([code, left], output).toEqual([broken.length === 0 ? 0 : 1, []])
})

test('a rolling restart with other scripts fails no request, and clients reconnect to Redis', {
  timeout: TIMEOUT_MS,
}, () => {
  const { code, output, left } = run('scripts/soak.mjs', ['--short', 'rolling-restart', 'reconnect'])
  expect(output.match(/all guarantees held/g), output).toHaveLength(2)
  expect([code, left]).toEqual([0, []])
})

describe('the command line', () => {
  test.each([
    [['--seconds', 'soon'], '--seconds soon: give a whole number from 4 to 86400'],
    [['--nodes', '0'], '--nodes 0: give a whole number from 1 to 16'],
    [['--rate', '-5'], "'--rate'"],
    [['--speed', '1'], "'--speed'"],
  ])('%j is rejected with a fix', (args, fault) => {
    expect(readOptions(args)).toEqual({ kind: 'invalid', error: expect.stringContaining(fault) })
  })

  test('has a help text and needs no argument', () => {
    expect(readOptions([])).toEqual({ kind: 'run', options: { seconds: undefined, nodes: 2, rate: 300 } })
    expect(readOptions(['--help'])).toEqual({ kind: 'help' })
  })
})
