// Rows of the event pipeline for tests.

import { expect } from 'vitest'
import type { ClickHouse } from '../src/events/clickhouse/client.ts'
import type { Batch, DecisionEvent } from '../src/events/event.ts'
import { EventIds } from '../src/events/event-ids.ts'
import type { Sink } from '../src/events/sink.ts'

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

/** The ClickHouse view `rate_limit_events` has a row per check, with the columns of the design document. */
export async function expectDocumentView(client: ClickHouse, sink: Sink): Promise<void> {
  const refused = {
    allowed: false,
    rule_id: 'logins',
    current_count: 5,
    timestamp: Date.UTC(2030, 0, 31, 1, 2, 3, 456),
  }
  const sampled = eventRow({ client_id: null, endpoint: null, rule_id: null, limit_count: null, sample_rate: 0.25 })
  const events = [eventRow(refused), sampled, eventRow({ operation: 'refund' })]
  await sink.write({ producer: 'view', seq: 1 }, batchOf({ events }), false)
  const sql = `SELECT * FROM ${client.database}.rate_limit_events ORDER BY timestamp`
  const rows = await client.query<Record<string, unknown>>(sql)
  const [first, second] = rows
  expect(rows.length, 'a refund is no check').toBe(2)
  expect(Object.keys(first ?? {})).toEqual([
    ...['event_id', 'client_id', 'endpoint', 'rule_id', 'allowed', 'current_count', 'limit_count', 'timestamp'],
    'sample_rate',
  ])
  expect(first).toMatchObject({ client_id: null, endpoint: null, rule_id: null, limit_count: null, sample_rate: 0.25 })
  expect(second).toMatchObject({ event_id: events[0]?.event_id, client_id: 'alice', endpoint: '/demo', allowed: 0 })
  expect(second).toMatchObject({ rule_id: 'logins', timestamp: expect.stringMatching(/:03$/), sample_rate: 1 })
  expect([Number(second?.current_count), Number(second?.limit_count)]).toEqual([5, 5])
}
