// Bundles the compiled command `sluice` with the library into packages/server/dist/command, because Node.js loads few
// files faster than many. Other packages stay imports. The folder appears complete: other processes may run it.

import { renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'vite'

const folder = fileURLToPath(new URL('../packages/server', import.meta.url))
const outDir = join(folder, `dist/command-${process.pid}`)
await build({
  root: folder,
  configFile: false,
  logLevel: 'warn',
  publicDir: false,
  build: {
    ssr: 'dist/main.js',
    outDir,
    target: 'es2023',
    rolldownOptions: { output: { chunkFileNames: '[name]-[hash].js' } },
  },
  ssr: { noExternal: [/^sluice(\/|$)/], external: true },
})
const command = join(folder, 'dist/command')
rmSync(command, { recursive: true, force: true })
renameSync(outDir, command)
