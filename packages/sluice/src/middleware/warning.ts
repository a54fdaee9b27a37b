// Warnings about a set-up that works, but not as its author thinks. Each is given once per process.

const given = new Set<string>()

export function warnOnce(code: string, message: string): void {
  if (given.has(code)) return
  given.add(code)
  if (typeof process !== 'undefined' && typeof process.emitWarning === 'function')
    process.emitWarning(message, { code })
  else console.warn(`[${code}] ${message}`)
}

/** Whether this process is a worker of a Node.js cluster, or one of several instances under PM2. */
export function isOneOfSeveral(): boolean {
  if (typeof process === 'undefined') return false
  // Asked for rather than imported: other runtimes do not have it, and a worker's NODE_UNIQUE_ID is gone once it runs.
  const cluster = process.getBuiltinModule?.('node:cluster') as { readonly isWorker?: boolean } | undefined
  // PM2 numbers its instances from 0, also when there is only one.
  const { NODE_APP_INSTANCE = '0' } = process.env
  return cluster?.isWorker === true || NODE_APP_INSTANCE !== '0'
}
