// `npm run example -- express`: from a fresh clone to a running example, on port 3000 unless PORT says otherwise. It
// runs in this very process, so Ctrl-C, signals and the exit code are its own.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, compile, installPackages, listFiles, root } from './setup.mjs'

const names = [...new Set(listFiles('examples').map((path) => path.split('/')[1]))].filter((name) => mainOf(name))
const [name = ''] = process.argv.slice(2)
if (!names.includes(name)) {
  console.error(`sluice: name one of the examples: ${names.join(', ')}`)
  process.exit(2)
}

installPackages()
const library = build()
if (existsSync(join(root, 'examples', name, 'tsconfig.json'))) compile(`examples/${name}`, library)
await import(pathToFileURL(mainOf(name)).href)

function mainOf(example) {
  const folder = join(root, 'examples', example)
  if (existsSync(join(folder, 'src/main.ts'))) return join(folder, 'dist/main.js')
  return existsSync(join(folder, 'server.mjs')) ? join(folder, 'server.mjs') : undefined
}
