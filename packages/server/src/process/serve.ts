// A service from its start to its end: settings → server → banner → wait for a signal → drain → close. Whatever can go
// wrong on the way ends in a message that says what to do, and in an exit code.

import { LimiterError } from 'sluice'
import { EXIT } from '../cli/command.ts'
import type { Terminal } from '../cli/terminal.ts'
import { createLog, type Log } from '../log.ts'
import { type Server, startServer } from '../node/server.ts'
import { mistakesIn } from '../rules/rule-file.ts'
import type { Settings } from '../settings/settings.ts'
import { workerNumber } from '../workers/node-workers.ts'
import { type BannerFacts, banner, NO_CHECK_FIX, NO_CHECKS } from './banner.ts'
import { endSignal } from './signals.ts'
import { superviseWorkers } from './workers.ts'

const LISTEN_ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'Another program listens there; choose another port with --port or --listen (0: any free one), or --socket.',
  EACCES: 'This user may not listen there: choose a port above 1023 with --port or --listen.',
  EADDRNOTAVAIL: 'This machine does not have that address: choose another with --host or --listen.',
  ENOENT: 'The folder of the socket file is not there: make it, or choose another with --socket.',
  ENOTFOUND: 'There is no such host: choose another with --host or --listen.',
}

/** What is run: how it starts, and what a person sees then. */
export type Program<S extends Settings, R extends Server> = {
  start(settings: S, log: Log): Promise<R>
  banner(running: R, settings: S): string
}

const SERVICE: Program<Settings, Server> = {
  start: async (settings, log) => {
    const server = await startServer(settings, log)
    if (!server.checksArePossible && workerNumber() <= 1)
      log.warn({ address: server.address, fix: NO_CHECK_FIX }, NO_CHECKS)
    return server
  },
  banner: (server) => banner(bannerFacts(server)),
}

export function serve(settings: Settings, warnings: readonly string[], terminal: Terminal): Promise<number> {
  return runProgram(SERVICE, settings, warnings, terminal)
}

/** Resolves with the exit code once it has ended. */
export async function runProgram<S extends Settings, R extends Server>(
  program: Program<S, R>,
  settings: S,
  warnings: readonly string[],
  terminal: Terminal,
): Promise<number> {
  const log = createLog(settings.logLevel)
  const { workers = 1 } = settings
  if (workers > 1 && workerNumber() === 0) return superviseWorkers(workers, settings, log)
  for (const warning of warnings) log.warn(warning)
  process.on('unhandledRejection', (reason) => log.error({ err: reason }, 'a promise was rejected and nobody noticed'))
  process.on('uncaughtException', (error) => {
    log.fatal({ err: error }, 'an error that nobody caught: what it left behind is unknown, so the process ends')
    process.exit(EXIT.failed)
  })
  const signal = endSignal()
  const server = await program.start(settings, log).catch((error: unknown) => explain(error, terminal))
  if (typeof server === 'number') return server
  if (workerNumber() <= 1) terminal.out(program.banner(server, settings))
  const { address, storeKind: store } = server
  log.info({ address, store, source: server.rulesPlace, rules: server.limiter.rules.length }, 'listening')

  const { name, drains } = await signal
  log.info({ signal: name, drain_ms: drains ? settings.drainMs : 0 }, 'stopping: not ready any more')
  server.drain()
  if (drains) await new Promise((resolve) => setTimeout(resolve, settings.drainMs))
  await server.close()
  log.info('stopped')
  return EXIT.done
}

export function bannerFacts(server: Server): BannerFacts {
  const { address, limiter, storeKind, rulesPlace, checksAreOpen, checksArePossible, firstToken } = server
  const store = storeKind === 'redis' ? 'Redis' : 'in memory'
  return { address, rules: limiter.rules, rulesPlace, store, checksAreOpen, checksArePossible, firstToken }
}

/** Tells why it cannot start; returns the exit code. */
function explain(error: unknown, { tell }: Terminal): number {
  if (error instanceof LimiterError) {
    const what = error.code === 'RULE_INVALID' ? 'the rules are wrong' : 'the settings are wrong'
    tell(`sluice: ${what}\n${mistakesIn(error).join('\n')}\n`)
    return EXIT.wrong
  }
  const { code, message } = error as NodeJS.ErrnoException
  const advice = LISTEN_ADVICE[code ?? '']
  tell(`sluice: ${message}${advice === undefined ? '' : `\n  ${advice}`}\n`)
  return EXIT.failed
}
