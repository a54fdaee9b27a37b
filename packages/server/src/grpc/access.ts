// Decides who makes a gRPC call: the bearer token in its metadata, else the client certificate of its connection. The
// tokens and roles are those of the HTTP API. A certificate that the client CA signed has the role `check`.

import { ANONYMOUS_CALLER, type Authenticator, bearerOf } from '../access/authenticator.ts'
import { type Caller, type Role, roleAllows } from '../access/roles.ts'
import type { Throttle } from '../access/throttle.ts'
import { tokenHash } from '../access/token.ts'
import { type Call, GrpcError, type Peer } from './method.ts'

export type GrpcAccessDeps = {
  readonly authenticator: Authenticator
  /** Limits calls of other roles than `check`, as the HTTP API does. */
  readonly throttle: Pick<Throttle, 'request'>
  /** Whether calls of the role `check` need neither token nor certificate. */
  readonly checksAreOpen: boolean
}

type HashedToken = { readonly header: string; readonly hash: string | undefined }

export class GrpcAccess {
  readonly #deps: GrpcAccessDeps
  /** Hash of the last token of a connection: hashing costs more than the rest of a check. */
  readonly #hashes = new WeakMap<Peer, HashedToken>()
  readonly #certificates = new WeakMap<Peer, Caller>()

  constructor(deps: GrpcAccessDeps) {
    this.#deps = deps
  }

  /** The caller, if it may make calls of this role. Throws `unauthenticated` or `permission_denied`. */
  require(call: Call, needed: Role): Caller {
    const caller = this.identify(call)
    if (needed === 'check' && this.#deps.checksAreOpen) return caller
    if (caller.role === undefined) throw new GrpcError('unauthenticated', tokenAdvice(needed))
    if (roleAllows(caller.role, needed)) {
      if (needed !== 'check') this.#deps.throttle.request(caller.id)
      return caller
    }
    const who = caller.id.startsWith(CERTIFICATE_PREFIX) ? 'a client certificate' : 'the token'
    throw new GrpcError('permission_denied', `this requires the role ${needed}; ${who} has the role ${caller.role}`)
  }

  /** Throws for an invalid token, also where none is needed. */
  identify(call: Call): Caller {
    const header = call.metadata('authorization')
    const hash = header === undefined ? undefined : this.#hashOf(header, call.peer)
    if (hash === undefined) return this.#certificateCaller(call.peer) ?? ANONYMOUS_CALLER
    const { tokenId: id, role } = this.#deps.authenticator.tokenOfHash(hash, addressOf(call.peer))
    return { id, role }
  }

  /** Whether the caller of a stream may still use it: tokens expire and are revoked. */
  isStillValid(caller: Caller): boolean {
    return caller.id.startsWith(CERTIFICATE_PREFIX) || this.#deps.authenticator.isStillValid(caller)
  }

  #hashOf(header: string, peer: Peer): string | undefined {
    const known = this.#hashes.get(peer)
    if (known?.header === header) return known.hash
    const secret = bearerOf(header)
    const hash = secret === undefined ? undefined : tokenHash(secret)
    this.#hashes.set(peer, { header, hash })
    return hash
  }

  #certificateCaller(peer: Peer): Caller | undefined {
    if (peer.certificateSubject === undefined) return undefined
    const known = this.#certificates.get(peer)
    if (known !== undefined) return known
    const caller: Caller = { id: CERTIFICATE_PREFIX + peer.certificateSubject, role: 'check' }
    this.#certificates.set(peer, caller)
    return caller
  }
}

/** Caller ids of client certificates begin with this. Token ids do not: `tok_…`, `file:…` or `admin-token`. */
const CERTIFICATE_PREFIX = 'certificate:'

function tokenAdvice(needed: Role): string {
  return `send a token with the role ${needed} as metadata: authorization: Bearer <token>`
}

/** The throttle of invalid tokens counts by address; clients of a socket file are local. */
function addressOf({ address }: Peer): string {
  return address === 'unix' ? '' : address
}
