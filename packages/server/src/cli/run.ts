// Runs the command that the arguments name. `serve` does not load the other commands, so that a node listens sooner.

import { safeTerminal, type Terminal } from '../process/terminal.ts'
import { requests } from './requests.ts'
import { SERVE } from './serve.ts'

export async function runCommand(args: readonly string[], given: Terminal): Promise<number> {
  const terminal = safeTerminal(given)
  const isNamed = args[0] !== undefined && !args[0].startsWith('-')
  const serves = !isNamed || args[0] === SERVE.name
  if (serves && !requests(args, '--help', '-h', '--version')) return SERVE.run(isNamed ? args.slice(1) : args, terminal)
  const { dispatch } = await import('./dispatch.ts')
  return dispatch(args, terminal)
}
