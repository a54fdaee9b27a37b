// `sluice drill store-down --seconds 30`: asks a running node to rehearse an outage.

import { parseArgs } from 'node:util'
import { DRILL_PATH } from '../http/drill.ts'

export const DRILL_HELP = `Usage: sluice drill store-down [--seconds 30] [--url http://127.0.0.1:8080]

Leaves Redis alone for a while, on purpose: every rule does what its on_fail says. 0 seconds ends a drill.
The node must run with --admin-token; the same token is read from SLUICE_ADMIN_TOKEN here.
`

type Result = { readonly exitCode: number; readonly output: string }

/** Does what `args` (behind `drill`) say, and returns what to print. */
export async function drill(args: readonly string[], environment: NodeJS.ProcessEnv): Promise<Result> {
  const wanted = readArguments(args)
  if (typeof wanted === 'string') return { exitCode: 2, output: `sluice drill: ${wanted}\n\n${DRILL_HELP}` }
  const { url, seconds } = wanted
  const authorization = `Bearer ${environment.SLUICE_ADMIN_TOKEN ?? ''}`
  try {
    const headers = { 'content-type': 'application/json', authorization }
    const response = await fetch(new URL(DRILL_PATH, url), {
      method: 'POST',
      headers,
      body: JSON.stringify({ seconds }),
    })
    if (response.ok) return { exitCode: 0, output: `Redis is left alone for ${seconds} s by ${url}\n` }
    const { detail = response.statusText } = (await response.json().catch(() => ({}))) as { detail?: string }
    const advice = response.status === 404 ? ' Start the node with --admin-token.' : ''
    return { exitCode: 1, output: `sluice drill: ${url} answered ${response.status}: ${detail}${advice}\n` }
  } catch (error) {
    const reason = error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error)
    return { exitCode: 1, output: `sluice drill: ${url} cannot be reached: ${reason}\n` }
  }
}

function readArguments(args: readonly string[]): { url: string; seconds: number } | string {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      options: {
        seconds: { type: 'string', default: '30' },
        url: { type: 'string', default: 'http://127.0.0.1:8080' },
      },
      allowPositionals: true,
    })
    if (positionals.join(' ') !== 'store-down') return 'say what to rehearse: store-down'
    if (!/^\d{1,4}$/.test(values.seconds)) return `--seconds: give a whole number up to 3600 (got ${values.seconds})`
    if (!URL.canParse(values.url)) return `--url: give a URL such as http://127.0.0.1:8080 (got ${values.url})`
    return { url: values.url, seconds: Number(values.seconds) }
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}
