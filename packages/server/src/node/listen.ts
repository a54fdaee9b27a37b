// Where the service listens: an address or a socket file, in clear or with TLS. Certificates that are renewed are used
// from then on; ones that cannot be used change nothing.

import { lstatSync, readFileSync, unlinkSync } from 'node:fs'
import type { ServerOptions, Server as TlsServer } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import { createSecureContext } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import type { Log } from '../log.ts'
import { filePrint, watchFile } from '../rules/file-watch.ts'
import type { Settings } from '../settings/settings.ts'

export type ListenSettings = Pick<Settings, 'host' | 'port' | 'socket' | 'tlsCert' | 'tlsKey' | 'tlsClientCa'>

/** Returns the address, such as `https://127.0.0.1:8080` or `unix:/run/sluice.sock`. */
export async function listen(app: FastifyInstance, { host, port, socket, tlsCert }: ListenSettings): Promise<string> {
  if (socket !== undefined) {
    await removeDeadSocket(socket)
    await app.listen({ path: socket })
    return `unix:${socket}`
  }
  await app.listen({ host, port })
  const { address, family, port: chosen } = app.server.address() as AddressInfo // it listens on a port, not on a pipe
  const name = family === 'IPv6' ? `[${address}]` : address
  return `${tlsCert === undefined ? 'http' : 'https'}://${name}:${chosen}`
}

/** What a process that was killed has left behind would be in the way; one that still listens is left alone. */
async function removeDeadSocket(path: string): Promise<void> {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSocket()) return
  const isDead = await new Promise<boolean>((resolve) => {
    const probe = connect(path, () => {
      probe.destroy()
      resolve(false)
    })
    probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'ECONNREFUSED'))
  })
  if (isDead) unlinkSync(path)
}

/** Undefined: in clear. Throws when the files do not fit together. */
export function tlsOptions({ tlsCert, tlsKey, tlsClientCa }: ListenSettings): ServerOptions | undefined {
  if (tlsCert === undefined || tlsKey === undefined) return undefined
  const files = { cert: readFileSync(tlsCert), key: readFileSync(tlsKey) }
  const clients = tlsClientCa === undefined ? {} : { ca: readFileSync(tlsClientCa) }
  try {
    createSecureContext({ ...files, ...clients })
  } catch (error) {
    throw new Error(
      `the files of --tls-cert, --tls-key and --tls-client-ca cannot be used: ${(error as Error).message}`,
    )
  }
  const verify = tlsClientCa === undefined ? {} : { requestCert: true, rejectUnauthorized: true }
  return { ...files, ...clients, ...verify }
}

/** Whoever connects after the files have changed meets the new ones. */
export function followCertificates(app: FastifyInstance, settings: ListenSettings, log: Log): { stop(): void } {
  const paths = [settings.tlsCert, settings.tlsKey, settings.tlsClientCa].filter((path) => path !== undefined)
  const renew = () => {
    try {
      const server = app.server as unknown as TlsServer // there are certificates to follow
      server.setSecureContext(tlsOptions(settings) ?? {})
      log.info('new certificates are in use')
    } catch (error) {
      log.error({ reason: (error as Error).message }, 'the new certificates cannot be used: the old ones stay')
    }
  }
  const watches = paths.map((path) => watchFile(path, filePrint(path), renew))
  return {
    stop: () => {
      for (const watch of watches) watch.stop()
    },
  }
}
