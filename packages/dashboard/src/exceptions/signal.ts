// Abuse signals as the API lists them.

export type Signal = {
  readonly signal_id: string
  readonly key: string
  readonly kind: string
  readonly severity: string
  readonly source: string | null
  readonly by: string
  readonly created_at: string
  readonly expires_at: string
}
export type SignalList = { readonly signals: readonly Signal[]; readonly next: string | null }
