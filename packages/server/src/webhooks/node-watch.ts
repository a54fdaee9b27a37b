// Notices what webhooks tell of, by looking at the node once a second: whoever changes something need not know that
// anybody listens, and trouble that comes and goes within a second is told to nobody.

import type { EventType } from './webhooks.ts'

const LOOK_MS = 1000

export type NodeState = {
  readonly rulesVersion: number
  readonly rules: number
  /** As /readyz tells it. */
  readonly trouble: readonly string[]
  /** What the kill switch says, in words; undefined: all rules are in force. */
  readonly killed: string | undefined
}

/** Never rejects. */
export type StateOf = () => NodeState | Promise<NodeState>

export type Tell = (type: EventType, data: Readonly<Record<string, unknown>>) => void

/** Every look asks for the state anew, as a load balancer that asks for /readyz does. */
export function watchNode(stateOf: StateOf, tell: Tell, lookMs: number = LOOK_MS): { stop(): void } {
  let before: NodeState | undefined
  let stopped = false
  let timer: NodeJS.Timeout
  const look = async () => {
    const now = await stateOf()
    if (stopped) return
    tellDifferences(before ?? { ...now, trouble: [] }, now, tell)
    before = now
    timer = setTimeout(look, lookMs).unref()
  }
  void look()
  return {
    stop: () => {
      stopped = true
      clearTimeout(timer)
    },
  }
}

export function tellDifferences(before: NodeState, now: NodeState, tell: Tell): void {
  if (now.rulesVersion !== before.rulesVersion) {
    tell('rules.changed', { from: before.rulesVersion, to: now.rulesVersion, rules: now.rules })
  }
  if (now.killed !== before.killed) tell('kill_switch.changed', { killed: now.killed ?? null })
  const [wasWell, isWell] = [before.trouble.length === 0, now.trouble.length === 0]
  if (wasWell && !isWell) tell('node.degraded', { trouble: now.trouble })
  if (!wasWell && isWell) tell('node.recovered', {})
}
