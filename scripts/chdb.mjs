// Installs a current ClickHouse engine (npm `chdb`, 546 MB) into a cache folder, outside of node_modules, for the tests
// that compare it with Debian's old server.

import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { bin, run, step } from './setup.mjs'

const VERSION = '3.4.0' // as in packages/server/test/chdb-engine.ts
const FOLDER = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'sluice', `chdb-${VERSION}`)

/** Returns false if a test failed. Without the engine, says so and returns true. */
export function testOnCurrentClickHouse() {
  if (!existsSync(join(FOLDER, 'node_modules/chdb')) && !step(`installing chdb ${VERSION}`, install)) {
    process.stderr.write('sluice: the tests on a current ClickHouse engine are skipped\n')
    return true
  }
  const test = 'packages/server/test/clickhouse-modern.test.ts'
  return step('testing on a current ClickHouse engine', () => run(bin('vitest'), ['run', test]))
}

function install() {
  mkdirSync(FOLDER, { recursive: true })
  writeFileSync(join(FOLDER, 'package.json'), '{ "private": true }\n')
  const quiet = ['--no-audit', '--no-fund', '--ignore-scripts']
  return run('npm', ['install', '--prefix', FOLDER, ...quiet, `chdb@${VERSION}`])
}
