// `npm start`: from a fresh clone to a running server. The server runs in this very process, so Ctrl-C, signals and the
// exit code are its own.

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, installPackages, root } from './setup.mjs'

installPackages()
build()

// npm runs scripts from the project's root; paths among the arguments are meant from where the user stands.
if (process.env.npm_lifecycle_event === 'start' && process.env.INIT_CWD) process.chdir(process.env.INIT_CWD)

const main = join(root, 'packages/server/dist/main.js')
process.argv[1] = main
await import(pathToFileURL(main).href)
