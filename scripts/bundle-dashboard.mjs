// Bundles the dashboard into packages/dashboard/dist/app, and compresses each file once, so that nodes only send bytes.
// The folder appears complete: other processes may read it or build it at the same time.

import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { build } from 'vite'

const folder = fileURLToPath(new URL('../packages/dashboard', import.meta.url))
const COMPRESSED = /\.(html|js|css|svg)$/
/** Budget of all JavaScript, gzipped, lazy parts and workers included: packages/dashboard/test/size.test.ts. */
const JAVASCRIPT_BYTES_MAX = 150_000

const outDir = join(folder, `dist/${process.pid}`)
process.env.NODE_ENV = 'production' // tests build too, with another value, and the result is what `npm start` serves
await build({ root: folder, logLevel: 'warn', build: { outDir } })
let javascriptBytes = 0
for (const name of readdirSync(outDir, { recursive: true, encoding: 'utf8' }).filter((path) => COMPRESSED.test(path))) {
  const content = readFileSync(join(outDir, name))
  const zipped = gzipSync(content, { level: 9 })
  if (name.endsWith('.js')) javascriptBytes += zipped.length
  writeFileSync(join(outDir, `${name}.gz`), zipped)
  const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY }
  writeFileSync(join(outDir, `${name}.br`), brotliCompressSync(content, { params: quality }))
}
if (javascriptBytes > JAVASCRIPT_BYTES_MAX) {
  rmSync(outDir, { recursive: true, force: true })
  throw new Error(
    `the dashboard has ${javascriptBytes} bytes of JavaScript, gzipped; the most is ${JAVASCRIPT_BYTES_MAX}`,
  )
}
const app = join(folder, 'dist/app')
rmSync(app, { recursive: true, force: true })
try {
  renameSync(outDir, app)
} catch {
  rmSync(outDir, { recursive: true, force: true }) // another process built the same files meanwhile
}
