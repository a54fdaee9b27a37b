#!/usr/bin/env node
// The command `sluice` as npm links it. It is there before anything is built, so that a fresh clone can have it too.

import { existsSync } from 'node:fs'

const main = new URL('../dist/command/main.js', import.meta.url)
if (existsSync(main)) {
  await import(main.href)
} else {
  process.stderr.write('sluice: it is not built yet: run npm run build first\n')
  process.exitCode = 1
}
