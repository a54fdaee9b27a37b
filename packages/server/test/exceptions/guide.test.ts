// Every command of docs/guides/exceptions.md, run in its order in one shell, prints what the page says.

import { execFile, spawnSync } from 'node:child_process'
import { chmodSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../databases.ts'
import { ADMIN_TOKEN, serveEmbedded } from '../service.ts'

const PAGE = readFileSync(new URL('../../../../docs/guides/exceptions.md', import.meta.url), 'utf8')
const MAIN = fileURLToPath(new URL('../../bin/sluice.js', import.meta.url))
const MARK = '=== next ==='
const hasCurl = spawnSync('curl', ['--version']).status === 0

/** Sets the variables that later commands use. */
const [, SETUP = ''] = /```sh\n(export .*\n)```/.exec(PAGE) ?? []
const EXAMPLES = [...PAGE.replace(SETUP, '').matchAll(/```sh\n([^`]+)```\n\n```(json|text)\n([\s\S]*?)```/g)].map(
  ([, command = '', language = '', output = '']) => ({ command, language, output }),
)

/** Ids, times and numbers of requests differ from run to run. */
function withoutVariables(text: string): string {
  return text
    .replace(/\b(ovr|byp|sig|fac)_[0-9a-f]+/g, '$1_ID')
    .replace(/\bslb_[\w-]+/g, 'slb_SECRET')
    .replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g, 'TIME')
    .replace(/"(reset_at|request_id)":("[^"]*"|\d+)/g, '"$1":0')
    .replace(/^( {2})\d+( +TIME)/gm, '$1N$2')
}

function shapeOf({ language, output }: { language: string; output: string }): string {
  const text = language === 'json' ? JSON.stringify(JSON.parse(output)) : output.trimEnd()
  return withoutVariables(text)
}

test.skipIf(!hasCurl)(
  'docs/guides/exceptions.md: every command prints what the page says',
  async () => {
    const { address } = await serveEmbedded({ adminToken: ADMIN_TOKEN })
    const folder = temporaryFolder()
    const command = join(folder, 'sluice')
    writeFileSync(command, `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`)
    chmodSync(command, 0o755)
    const env = {
      ...process.env,
      PATH: `${folder}:${process.env.PATH}`,
      TOKEN: ADMIN_TOKEN,
    }
    expect(EXAMPLES.length).toBeGreaterThan(10)
    const script = [SETUP, ...EXAMPLES.map((example) => `${example.command}\necho\necho "${MARK}"\n`)].join('')
    const run = promisify(execFile)
    const { stdout } = await run('sh', ['-c', script.replaceAll('http://127.0.0.1:8080', address)], { env })
    const outputs = stdout.split(`${MARK}\n`).slice(0, EXAMPLES.length)
    for (const [index, example] of EXAMPLES.entries()) {
      const printed = { language: example.language, output: outputs[index] ?? '' }
      expect(shapeOf(printed), example.command).toBe(shapeOf(example))
    }
  },
  300_000,
)
