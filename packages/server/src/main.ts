#!/usr/bin/env node
// The command `sluice`: settings → server → banner → wait for a signal → drain → close → exit. Whatever can go wrong on
// the way ends in a message that says what to do, and in an exit code: 1 failed, 2 the settings or the rules are wrong.

import { LimiterError } from 'sluice'
import { banner } from './banner.ts'
import { drill } from './cli/drill.ts'
import { readCommand } from './command-line.ts'
import { helpText, usageText } from './help.ts'
import { createLog } from './log.ts'
import { VERSION } from './package-facts.ts'
import { mistakesIn } from './rules/rule-file.ts'
import { type Server, startServer } from './server.ts'
import type { Settings } from './settings.ts'
import { endSignal } from './signals.ts'
import { superviseWorkers, workerNumber } from './workers.ts'

const LISTEN_ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'Another program listens there: choose another port with --port, or 0 for any free one, or another --socket.',
  EACCES: 'This user may not listen there: choose a port above 1023 with --port.',
  EADDRNOTAVAIL: 'This machine does not have that address: choose another with --host.',
  ENOENT: 'The folder of the socket file is not there: make it, or choose another with --socket.',
  ENOTFOUND: 'There is no such host: choose another with --host.',
}

if (process.argv[2] === 'drill') await runDrill(process.argv.slice(3))
else await runService()

async function runDrill(args: readonly string[]): Promise<void> {
  const { exitCode, output } = await drill(args, process.env)
  if (exitCode === 0) process.stdout.write(output)
  else fail(output, exitCode)
}

async function runService(): Promise<void> {
  const command = readCommand(process.argv.slice(2), process.env)
  if (command.kind === 'help') process.stdout.write(helpText())
  else if (command.kind === 'version') process.stdout.write(`${VERSION}\n`)
  else if (command.kind === 'wrong') fail(usageText(command.faults), 2)
  else await serve(command.settings, command.warnings)
}

async function serve(settings: Settings, warnings: readonly string[]): Promise<void> {
  const log = createLog(settings.logLevel)
  const { workers = 1 } = settings
  if (workers > 1 && workerNumber() === 0) process.exit(await superviseWorkers(workers, log))
  for (const warning of warnings) log.warn(warning)
  process.on('unhandledRejection', (reason) => log.error({ err: reason }, 'a promise was rejected and nobody noticed'))
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'an error that nobody caught: what it left behind is unknown, so the process ends')
    process.exit(1)
  })
  const signal = endSignal()
  const server = await startServer(settings, log).catch(explain)
  if (server === undefined) {
    if (workerNumber() > 0) process.exit() // with the code that `fail` has set; its channel would keep it alive
    return
  }
  process.stdout.on('error', () => {}) // whoever read the banner may leave
  if (workerNumber() <= 1) process.stdout.write(banner(bannerFacts(server)))
  const { address, storeKind: store } = server
  log.info({ address, store, source: server.rulesPlace, rules: server.limiter.rules.length }, 'listening')

  const { name, drains } = await signal
  log.info({ signal: name, drain_ms: drains ? settings.drainMs : 0 }, 'stopping: not ready any more')
  server.drain()
  if (drains) await new Promise((resolve) => setTimeout(resolve, settings.drainMs))
  await server.close()
  log.info('stopped')
  process.exit(0) // the banner's reader or a debugger may still hold a handle
}

function bannerFacts({ address, limiter, storeKind, rulesPlace, checksAreOpen, firstToken }: Server) {
  const store = storeKind === 'redis' ? 'Redis' : 'in memory'
  return { address, rules: limiter.rules, rulesPlace, store, checksAreOpen, firstToken }
}

function explain(error: unknown): undefined {
  const what =
    error instanceof LimiterError && error.code === 'RULE_INVALID' ? 'the rules are wrong' : 'the settings are wrong'
  if (error instanceof LimiterError) return fail(`sluice: ${what}\n${mistakesIn(error).join('\n')}\n`, 2)
  const { code, message } = error as NodeJS.ErrnoException
  const advice = LISTEN_ADVICE[code ?? '']
  return fail(`sluice: ${message}${advice === undefined ? '' : `\n  ${advice}`}\n`, 1)
}

function fail(message: string, exitCode: number): undefined {
  process.stderr.write(message)
  process.exitCode = exitCode
}
