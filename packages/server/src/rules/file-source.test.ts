import { mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { fileSource } from './file-source.ts'

async function watched(content: string) {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'))
  const path = join(folder, 'rules.yaml')
  writeFileSync(path, content)
  const source = fileSource(path)
  await source.read(undefined)
  const changed = vi.fn()
  const watch = await source.watch(changed)
  onTestFinished(async () => {
    await watch.stop()
    rmSync(folder, { recursive: true })
  })
  const untilChanged = (times: number) => vi.waitFor(() => expect(changed).toHaveBeenCalledTimes(times), 10_000)
  return { path, source, untilChanged }
}

test('a file that is still being written is not read, even by an explicit read', async () => {
  const { path, source, untilChanged } = await watched('[]')
  writeFileSync(path, '- { rule_id: half, limit: 1, window: 1d }\n')
  expect(await source.read(undefined)).toBeUndefined()
  await untilChanged(1)
  expect(await source.read(undefined)).toMatchObject({ rules: [{ rule_id: 'half' }] })
  expect(await source.read(undefined)).toBeUndefined()
})

test('a change is seen even if the modification time is restored', async () => {
  const { path, source, untilChanged } = await watched('- { rule_id: a, limit: 1, window: 1d }\n')
  const { atime, mtime } = statSync(path)
  writeFileSync(path, '- { rule_id: b, limit: 1, window: 1d }\n')
  utimesSync(path, atime, mtime)
  await untilChanged(1)
  expect(await source.read(undefined)).toMatchObject({ rules: [{ rule_id: 'b' }] })
})

test('a failed read is retried', async () => {
  const { path, source, untilChanged } = await watched('[]')
  rmSync(path)
  await untilChanged(1)
  for (let looks = 0; looks < 2; looks += 1)
    await expect(source.read(undefined)).rejects.toThrow('give a readable file')
})
