// Runs the service: settings → server → banner → wait for a signal → drain → close. Failures end in a message with the
// fix, and in an exit code.

import { LimiterError } from 'sluice'
import { EnvoyConfigInvalid } from '../envoy/config-files.ts'
import { createLog, type Log } from '../log.ts'
import { errorLines } from '../rules/rule-file.ts'
import { type Server, startServer } from '../service/server.ts'
import type { ValidCommandLine } from '../settings/command-line.ts'
import { STOP_MS_MAX } from '../settings/deadlines.ts'
import type { Settings } from '../settings/settings.ts'
import { workerNumber } from '../worker-number.ts'
import { type BannerFacts, banner, NO_CHECK_FIX } from './banner.ts'
import { EXIT } from './exit-codes.ts'
import { limitStop, terminationSignal } from './signals.ts'
import { superviseWorkers } from './supervisor.ts'
import type { Terminal } from './terminal.ts'

const LISTEN_ADVICE: Readonly<Record<string, string>> = {
  EADDRINUSE:
    'The address is in use: choose another port with --port (gateway: --listen or --api-port) or --grpc-port ' +
    '(0: any free one), or --socket.',
  EACCES: 'This user may not listen there: choose a port above 1023 with --port (gateway: --listen or --api-port).',
  EADDRNOTAVAIL:
    'This machine does not have that address: choose another with --host (gateway: --listen or --api-host).',
  ENOENT: 'The folder of the socket file does not exist: create it, or choose another with --socket.',
  ENOTFOUND: 'There is no such host: choose another with --host (gateway: --listen or --api-host).',
}

/** A worker reports what it could not end, before its supervisor kills it. */
const BEFORE_SUPERVISOR_MS = 500

/** Start function and banner of a program. */
export type Program<S extends Settings, R extends Server> = {
  start(settings: S, log: Log): Promise<R>
  banner(running: R, settings: S): string
}

const SERVICE: Program<Settings, Server> = {
  start: async (settings, log) => {
    const server = await startServer(settings, log)
    if (!server.checksArePossible && workerNumber() <= 1)
      log.event('check_token_missing', { address: server.address, fix: NO_CHECK_FIX })
    return server
  },
  banner: (server) => banner(bannerFacts(server)),
}

export function serve(command: ValidCommandLine, terminal: Terminal): Promise<number> {
  return runProgram(SERVICE, command, terminal)
}

/** Resolves with the exit code. */
export async function runProgram<S extends Settings, R extends Server>(
  program: Program<S, R>,
  { settings, warnings, adopted }: ValidCommandLine<S>,
  terminal: Terminal,
): Promise<number> {
  const log = createLog(settings.logLevel)
  const { workers = 1 } = settings
  if (workers > 1 && workerNumber() === 0) {
    return superviseWorkers(workers, settings, log).catch((error: unknown) => explain(error, terminal))
  }
  for (const reason of warnings) log.event('setting_unknown', { reason })
  if (adopted.length > 0) log.event('envoy_variables_adopted', { settings: adopted })
  process.on('unhandledRejection', (reason) => log.event('unhandled_rejection', { err: reason }))
  process.on('uncaughtException', (error) => {
    log.event('uncaught_exception', { err: error }) // the process is in an unknown state
    process.exit(EXIT.failed)
  })
  const signal = terminationSignal()
  const forceExit = () => {
    log.event('stop_forced', { left: activeResources() })
    process.exit(EXIT.failed)
  }
  void limitStop(signal, settings.drainMs, forceExit, STOP_MS_MAX - (workerNumber() > 0 ? BEFORE_SUPERVISOR_MS : 0))
  const server = await program.start(settings, log).catch((error: unknown) => explain(error, terminal))
  if (typeof server === 'number') return server
  const writesEvents = settings.eventsSinks?.some(({ kind, target }) => kind === 'jsonl' && target === '-')
  const print = writesEvents ? terminal.tell : terminal.out // stdout then holds JSON lines only
  if (workerNumber() <= 1) print(program.banner(server, settings))
  const { address, storeKind: store } = server
  log.event('listening', { address, store, source: server.rulesLocation, rules: server.limiter.rules.length })

  const { name, drains } = await signal
  log.event('stopping', { signal: name, drain_ms: drains ? settings.drainMs : 0 })
  server.drain()
  if (drains) await new Promise((resolve) => setTimeout(resolve, settings.drainMs))
  await server.close()
  log.event('stopped', {})
  return EXIT.done
}

/** Handles and requests that keep the process alive, by type. */
function activeResources(): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const type of process.getActiveResourcesInfo()) counts[type] = (counts[type] ?? 0) + 1
  return counts
}

export function bannerFacts(server: Server): BannerFacts {
  const { address, grpcAddress, limiter, storeKind, rulesLocation } = server
  const { checksAreOpen, checksArePossible, hasDashboard, signInIsPossible, firstToken } = server
  const store = storeKind === 'redis' ? 'Redis' : 'in memory'
  const facts = { address, grpcAddress, rules: limiter.rules, rulesLocation, store, firstToken }
  return { ...facts, checksAreOpen, checksArePossible, hasDashboard, signInIsPossible }
}

function invalidPart(error: LimiterError): string {
  if (error instanceof EnvoyConfigInvalid) return 'Envoy configuration'
  return error.code === 'RULE_INVALID' ? 'rules' : 'settings'
}

/** Prints why the start failed; returns the exit code. */
function explain(error: unknown, { tell }: Terminal): number {
  if (error instanceof LimiterError) {
    tell(`sluice: invalid ${invalidPart(error)}\n${errorLines(error).join('\n')}\n`)
    return EXIT.invalid
  }
  const { code, message } = error as NodeJS.ErrnoException
  const advice = LISTEN_ADVICE[code ?? '']
  tell(`sluice: ${message}${advice === undefined ? '' : `\n  ${advice}`}\n`)
  return EXIT.failed
}
