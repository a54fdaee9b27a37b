import { execFile, spawnSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { GUARD_DEFAULTS, parseGuard } from '../../src/rollouts/guard-settings.ts'
import { temporaryFolder, usePostgres } from '../databases.ts'
import { start } from '../process.ts'
import { ADMIN_TOKEN } from '../service.ts'

const page = readFileSync(new URL('../../../../docs/guides/rollouts.md', import.meta.url), 'utf8')
const BLOCKS = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].map(([, text = '']) => text)
const MAIN = fileURLToPath(new URL('../../bin/sluice.js', import.meta.url))
const shell = promisify(execFile)
const hasCurl = spawnSync('curl', ['--version']).status === 0

const postgres = usePostgres()

/** Runs the commands of the page one after the other, as two people would. */
test.skipIf(!hasCurl)('every command of docs/guides/rollouts.md works', async () => {
  const folder = temporaryFolder()
  writeFileSync(join(folder, 'sluice'), `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`)
  chmodSync(join(folder, 'sluice'), 0o755)
  const database = postgres().createDatabase()
  const node = await start(['--admin-token', ADMIN_TOKEN, '--database', database, '--approvals', '1'])
  const env: Record<string, string> = {
    ...{ PATH: `${folder}:${process.env.PATH}`, SLUICE_URL: node.address, SLUICE_TOKEN: ADMIN_TOKEN },
    DATABASE_URL: database,
  }
  const run = (command: string) => shell('sh', ['-c', command], { env, cwd: folder })
  const file = join(folder, 'rules.yaml')
  expect(BLOCKS.length).toBeGreaterThan(3)
  writeFileSync(join(folder, 'variables'), '')
  let printed = ''
  for (const block of BLOCKS) {
    const { stdout: output } = await run(
      `set -ea; . ./variables; ${block}\nset | grep -E '^(ANN|BEN|PROPOSAL)=' > variables || true`,
    )
    printed += output
    if (!block.includes('rules export')) continue
    writeFileSync(file, readFileSync(file, 'utf8').replace(/(rule_id: demo[\s\S]*?limit: )\d+/, '$12'))
  }
  const rolledBack = /^ {2}rolled back by the guard: rule demo: 100 % of \d+ paired requests newly denied .*\d+ keys$/m
  expect(printed).toMatch(rolledBack)
  expect(page).toMatch(rolledBack)
  expect(readFileSync(join(folder, 'answers.json'), 'utf8')).not.toContain('"allowed":false')
  const { stdout } = await run('sluice rules rollout status')
  expect(stdout).toMatch(/rolled back +demo +ann +rolled back by tok_\w+: wrong rule/)
})

test('the guide shows the defaults of the guard', () => {
  const [, text = ''] = /```json\n([\s\S]*?)```/.exec(page) ?? []
  expect(parseGuard((JSON.parse(text) as { guard: unknown }).guard)).toEqual(GUARD_DEFAULTS)
})
