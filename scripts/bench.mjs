// `npm run bench`: builds and benchmarks the compiled packages. Arguments go to the benchmark.

import { build, compile, installPackages, runInForeground } from './setup.mjs'

installPackages()
compile('bench', build())
const args = ['--expose-gc', 'bench/dist/main.js', ...process.argv.slice(2)]
process.exitCode = await runInForeground(process.execPath, args)
