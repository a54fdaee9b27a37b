import { defineConfig } from 'vite'

/** `npx vite packages/dashboard` serves the sources with hot reload, on top of a service on the default port. */
const SERVICE = process.env.SLUICE_URL ?? 'http://127.0.0.1:8080'

/** One chunk for what several pages share: small chunks compress badly. Charts stay apart, because they are large. */
const SHARED = { name: 'shared', test: /dashboard.src.(?!pages|components.chart|bucket)/, minShareCount: 2 }

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
  worker: { format: 'es' },
})
