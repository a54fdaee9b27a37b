import { defineConfig, type Plugin } from 'vite'

/** `npx vite packages/dashboard` serves the sources with hot reload, on top of a service on the default port. */
const SERVICE = process.env.SLUICE_URL ?? 'http://127.0.0.1:8080'

/** One chunk for what several pages share: small chunks compress badly. Charts stay apart, because they are large. */
const SHARED = { name: 'shared', test: /dashboard.src.(?!pages|components.chart|bucket)/, minShareCount: 2 }

/** Parts of the engine that no replay calls: explanations, advice, exceptions, joint checks, hot keys, warnings. */
const UNUSED =
  /sluice.src.(rules.(explain|pattern-suggestion|bypass|exceptions)|joint-check|hot-keys.hot-keys|warning)\.ts$/

/** Replaces them by functions and classes that do nothing, which saves 7 kB. */
function withoutUnused(): Plugin {
  return {
    name: 'without-unused',
    enforce: 'pre',
    transform(code, id) {
      if (!UNUSED.test(id)) return undefined
      const exported = [...code.matchAll(/^export (function|class|const) (\w+)/gm)]
      const stubs = exported.map(([, kind, name]) => {
        if (kind === 'const') return `export const ${name} = []`
        return kind === 'class' ? `export class ${name} { checked() {} }` : `export function ${name}() {}`
      })
      return stubs.join('\n')
    },
  }
}

export default defineConfig({
  root: import.meta.dirname,
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  resolve: { conditions: ['source', 'module', 'browser', 'production'] },
  server: { proxy: { '/api': SERVICE } },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // the content security policy forbids data: URLs
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 150,
    rolldownOptions: { output: { codeSplitting: { groups: [SHARED] } } },
  },
  worker: { format: 'es', plugins: () => [withoutUnused()] },
})
