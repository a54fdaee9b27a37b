#!/usr/bin/env node
// The command `sluice` as npm links it. Needs no build, so that npm can link it in a fresh clone.

import { existsSync } from 'node:fs'

const main = new URL('../dist/command/main.js', import.meta.url)
if (existsSync(main)) {
  await import(main.href)
} else {
  process.stderr.write('sluice: it is not built yet: run npm run build first\n')
  process.exitCode = 1
}
