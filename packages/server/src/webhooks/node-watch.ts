// Polls the state of the node once a second and sends the differences to webhooks, so that no other code depends on
// them. Failures shorter than a second are not reported.

import { type Poll, poll } from './poll.ts'
import type { EventType } from './webhooks.ts'

const POLL_MS = 1000

export type NodeState = {
  readonly rulesVersion: number
  readonly rules: number
  /** As in /readyz. */
  readonly reasons: readonly string[]
  /** Summary of the kill switch; undefined if all rules are enforced. */
  readonly killed: string | undefined
  /** Summary of freeze and global factor; undefined if there is neither. */
  readonly incident?: string | undefined
}

/** Never rejects. */
export type StateOf = () => NodeState | Promise<NodeState>

export type SendEvent = (type: EventType, data: Readonly<Record<string, unknown>>) => void

export function watchNode(stateOf: StateOf, send: SendEvent, pollMs: number = POLL_MS): Poll {
  let before: NodeState | undefined
  return poll(stateOf, pollMs, (now) => {
    sendDifferences(before ?? { ...now, reasons: [] }, now, send)
    before = now
  })
}

export function sendDifferences(before: NodeState, now: NodeState, send: SendEvent): void {
  if (now.rulesVersion !== before.rulesVersion) {
    send('rules.changed', { from: before.rulesVersion, to: now.rulesVersion, rules: now.rules })
  }
  if (now.killed !== before.killed) send('kill_switch.changed', { killed: now.killed ?? null })
  if (now.incident !== before.incident) send('incident.changed', { incident: now.incident ?? null })
  const [wasWell, isWell] = [before.reasons.length === 0, now.reasons.length === 0]
  if (wasWell && !isWell) send('node.degraded', { reasons: now.reasons })
  if (!wasWell && isWell) send('node.recovered', {})
}
