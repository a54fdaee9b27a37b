import { expect, onTestFinished, test, vi } from 'vitest'
import { systemTimers } from '../../../../sluice/src/clock.ts'
import { Deadlines, type Expiring } from './deadlines.ts'

function open(deadlines: Deadlines, timeoutMs: number): Expiring & { expired: boolean } {
  const call = {
    deadlineTick: 0,
    expired: false,
    expire: () => {
      call.expired = true
    },
  }
  deadlines.add(call, timeoutMs)
  return call
}

test('an answer that is due before the deadline wins, also if the process stalls until after it', async () => {
  const deadlines = new Deadlines()
  onTestFinished(() => deadlines.clear())
  const [answered, silent] = [open(deadlines, 10), open(deadlines, 10)]
  systemTimers.after(5, () => setImmediate(() => deadlines.remove(answered)))
  const startMs = performance.now()
  while (performance.now() < startMs + 30) {} // no callback runs
  await vi.waitFor(() => expect(silent.expired).toBe(true))
  expect(answered.expired).toBe(false)
})
