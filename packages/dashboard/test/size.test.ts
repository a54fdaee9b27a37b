import { gzipSync } from 'node:zlib'
import { build, type Rolldown } from 'vite'
import { describe, expect, it, vi } from 'vitest'

/** Budget of all JavaScript, gzipped, lazy parts and workers included. */
const JAVASCRIPT_BYTES_MAX = 150_000
const STYLES_BYTES_MAX = 15_000

describe('the bundle', async () => {
  const files = await bundle()

  it(`has at most ${JAVASCRIPT_BYTES_MAX / 1000} kB of JavaScript, gzipped`, () => {
    expect(compressedBytes('.js')).toBeLessThanOrEqual(JAVASCRIPT_BYTES_MAX)
  })

  it(`has at most ${STYLES_BYTES_MAX / 1000} kB of styles, gzipped`, () => {
    expect(compressedBytes('.css')).toBeLessThanOrEqual(STYLES_BYTES_MAX)
  })

  it('needs neither eval, nor inline scripts or styles, nor another host', () => {
    for (const [name, text] of files) {
      expect(text, name).not.toMatch(/\beval\(|new Function\(|<style|style="|\son\w+="|javascript:/)
      if (!name.endsWith('.js')) expect(text, name).not.toMatch(/https?:\/\/(?!www\.w3\.org)/) // XML namespaces
    }
    const html = files.get('index.html') ?? ''
    expect(html.match(/<script[^>]*>/g)).toEqual([expect.stringContaining('src="/assets/')])
  })

  function compressedBytes(ending: string): number {
    return [...files]
      .filter(([name]) => name.endsWith(ending))
      .reduce((sum, [, text]) => sum + gzipSync(text, { level: 9 }).length, 0)
  }
})

/** Name → content of every file of a production build. */
async function bundle(): Promise<Map<string, string>> {
  vi.stubEnv('NODE_ENV', 'production') // as in the build that is shipped; vitest sets `test`
  const built = (await build({
    root: 'packages/dashboard',
    logLevel: 'silent',
    mode: 'production',
    build: { write: false },
  })) as Rolldown.RolldownOutput
  return new Map(
    built.output.map((file) => [file.fileName, file.type === 'chunk' ? file.code : String(file.source)] as const),
  )
}
