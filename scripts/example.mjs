// `npm run example -- express`: installs, builds and runs an example on port 3000, or on PORT. It runs in this process,
// so that Ctrl-C, signals and the exit code need no forwarding.

import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, compile, installPackages, listFiles, root } from './setup.mjs'

const names = [...new Set(listFiles('examples').map((path) => path.split('/')[1]))].filter((name) => mainOf(name))
const [name = ''] = process.argv.slice(2)
if (!names.includes(name)) {
  console.error(`sluice: give the name of an example: ${names.join(', ')}`)
  process.exit(2)
}

process.on('uncaughtException', (error) => {
  const isTaken = error.code === 'EADDRINUSE'
  console.error(
    isTaken ? `sluice: port ${error.port} is in use: stop that process, or set PORT=0 for free ports` : error,
  )
  process.exit(1)
})

installPackages()
const library = build()
if (existsSync(join(root, 'examples', name, 'tsconfig.json'))) compile(`examples/${name}`, library)
await import(pathToFileURL(mainOf(name)).href)

function mainOf(example) {
  const folder = join(root, 'examples', example)
  if (existsSync(join(folder, 'src/main.ts'))) return join(folder, 'dist/main.js')
  return existsSync(join(folder, 'server.mjs')) ? join(folder, 'server.mjs') : undefined
}
