// Deliveries of one process to its webhooks, and of all workers of a node.

/** Deliveries to one URL since the start. Names its host only: the path may contain a secret. */
export type WebhookState = {
  readonly host: string
  readonly delivered: number
  readonly dropped: number
  readonly pending: number
  readonly last_delivered_at: string | null
  /** Null since the last delivery. */
  readonly last_error: { readonly at: string; readonly reason: string } | null
}

/** Topic of the states of each worker: a list of WebhookState. */
export const WEBHOOKS_TOPIC = 'webhook_states'

/** All workers have the same webhooks. Only the leader sends, but the leader may have changed. */
export function mergeStates(ofWorkers: readonly (readonly WebhookState[])[]): WebhookState[] {
  const [first = []] = ofWorkers
  return first.map(({ host }, index) => {
    const states = ofWorkers.flatMap((one) => one[index] ?? [])
    const sum = (of: (state: WebhookState) => number) => states.reduce((total, state) => total + of(state), 0)
    const delivered =
      states
        .map((one) => one.last_delivered_at ?? '')
        .sort()
        .at(-1) || null
    const failures = states.flatMap((one) => one.last_error ?? []).sort((a, b) => (a.at < b.at ? -1 : 1))
    const failure = failures.at(-1)
    return {
      host,
      delivered: sum((one) => one.delivered),
      dropped: sum((one) => one.dropped),
      pending: sum((one) => one.pending),
      last_delivered_at: delivered,
      last_error: failure === undefined || failure.at < (delivered ?? '') ? null : failure,
    }
  })
}
