// Rows of the event pipeline for tests.

import type { Batch, DecisionEvent } from '../src/events/event.ts'
import { EventIds } from '../src/events/event-ids.ts'

const ids = new EventIds()

/** An admission by the rule `demo`, except for the given fields. */
export function eventRow(fields: Partial<DecisionEvent> = {}): DecisionEvent {
  const timestamp = fields.timestamp ?? Date.UTC(2030, 0, 31)
  return {
    ...{ event_id: ids.next(timestamp), timestamp, request_id: 'request', client_id: 'alice', api_key: null },
    ...{ ip: '192.0.2.1', tenant: null, plan: null, method: 'GET', endpoint: '/demo', endpoint_pattern: '/demo' },
    ...{ rule_id: 'demo', limit_name: 'default', scope: 'per_user', mode: 'enforce', shadow_refused_by: null },
    ...{ override_id: null, bypass_id: null, signal: null },
    ...{ bucket_key: 'demo:default:user:alice', allowed: true, current_count: 1, limit_count: 5, remaining: 4 },
    ...{ cost: 1, retry_after_ms: 0, version: 1, source: 'store', region: null, node: 'node', decision_us: 10 },
    ...{ operation: 'check', store_time_us: timestamp * 1000, sequence: 1, request_cost: 1, attributes: null },
    ...{ sample_rate: 1, admission_rate: 1, sample_position: null },
    ...fields,
  }
}

export function batchOf(rows: Partial<Batch>): Batch {
  return { events: [], counts: [], limits: [], clients: [], latency: [], ...rows }
}
