// `npm start`: installs, builds and runs the server. It runs in this process, so that Ctrl-C, signals and the exit code
// need no forwarding.

import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { build, installPackages, root } from './setup.mjs'

installPackages()
build()

// npm runs scripts in the root of the project, but paths in arguments are relative to the user's working directory.
if (process.env.npm_lifecycle_event === 'start' && process.env.INIT_CWD) process.chdir(process.env.INIT_CWD)

const main = join(root, 'packages/server/bin/sluice.js')
process.argv[1] = main
await import(pathToFileURL(main).href)
