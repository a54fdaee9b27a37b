// Ten million decisions of one day for the analytics scenario, the same in ClickHouse and in the embedded database:
// 20 rules with one endpoint each, 3 plans, 10 tenants, 5 % refused. Per minute that is 600 series of admissions and
// 345 of refusals, and the 200 busiest clients.

export const MINUTES = 1440
const PER_MINUTE = 6945
const ADMITTED_PER_MINUTE = 6600
const SERIES = 600
const CLIENTS_PER_MINUTE = 200
const LATENCY_BOUNDS_US = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, -1]

export const DECISIONS: number = MINUTES * PER_MINUTE

/** Statements for ClickHouse: every decision is an event and a row of each rollup per second, as if it came alone. */
export function clickHouseData(startMinute: number): readonly string[] {
  const k = `number % ${PER_MINUTE}`
  const minute = `${startMinute} + intDiv(number, ${PER_MINUTE})`
  const second = `toUInt32((${minute}) * 60 + intDiv((${k}) * 60, ${PER_MINUTE}))`
  const time = `toDate(toDateTime(${second}), 'UTC') AS day, toDateTime(${second}) AS time`
  const series = `(${k}) % ${SERIES}`
  const rule = `concat('rule_', toString(${series} % 20))`
  const endpoint = `concat('/api/v1/service_', toString(${series} % 20), '/:id')`
  const plan = `concat('plan_', toString(intDiv(${series}, 20) % 3))`
  const tenant = `concat('tenant_', toString(intDiv(${series}, 60)))`
  const allowed = `(${k}) < ${ADMITTED_PER_MINUTE}`
  const result = `if(${allowed}, 'allowed', 'refused')`
  const id = `toString(number)`
  const client = `concat('user_', toString(intHash32(number) % 5000))`
  const minuteTime = (count: number) => {
    const at = `toUInt32((${startMinute} + intDiv(number, ${count})) * 60)`
    return `toDate(toDateTime(${at}), 'UTC'), toDateTime(${at})`
  }
  const bounds = LATENCY_BOUNDS_US.length
  return [
    `INSERT INTO sluice.sluice_events (day, timestamp, timestamp_ms, allowed, event_id, request_id, client_id, ip,
       tenant, plan, method, endpoint, endpoint_pattern, rule_id, limit_name, scope, mode, bucket_key, current_count,
       limit_count, remaining, cost, version, source, node, decision_us, sample_rate)
     SELECT day, time, toInt64(${second}) * 1000, ${allowed}, ${id}, ${id}, ${client}, '203.0.113.1', ${tenant},
       ${plan}, 'GET', ${endpoint}, ${endpoint}, ${rule}, 'default', 'per_user', 'enforce', ${client}, 10, 100, 90,
       1, 1, 'local', 'bench', 20, 1 FROM (SELECT number, ${time} FROM numbers(${DECISIONS}))`,
    `INSERT INTO sluice.sluice_counts (day, time, rule, endpoint, plan, tenant, result, source, count, producer, batch)
     SELECT ${time}, ${rule}, ${endpoint}, ${plan}, ${tenant}, ${result}, 'local', 1, 'bench', 1
     FROM numbers(${DECISIONS})`,
    `INSERT INTO sluice.sluice_limits (day, time, rule, limit_name, mode, allowed, refused, near_limit, producer, batch)
     SELECT ${time}, ${rule}, 'default', 'enforce', ${allowed}, 1 - (${allowed}), 0, 'bench', 1
     FROM numbers(${DECISIONS})`,
    `INSERT INTO sluice.sluice_clients (day, time, kind, client, allowed, refused, near_limit, producer, batch)
     SELECT ${minuteTime(CLIENTS_PER_MINUTE)}, 'user', ${client}, 30, 1, 2, 'bench', 1
     FROM numbers(${MINUTES * CLIENTS_PER_MINUTE})`,
    `INSERT INTO sluice.sluice_latency (day, time, le_us, count, producer, batch)
     SELECT ${minuteTime(bounds)}, [${LATENCY_BOUNDS_US}][number % ${bounds} + 1], 500, 'bench', 1
     FROM numbers(${MINUTES * bounds})`,
  ]
}

/** Statements for the embedded database, which stores one row per minute and series. */
export function embeddedData(startMinute: number): readonly string[] {
  const minutes = `generate_series(${startMinute}, ${startMinute + MINUTES - 1}) AS minute`
  const rule = `'rule_' || s % 20`
  const names = `${rule}, '/api/v1/service_' || s % 20 || '/:id', 'plan_' || s / 20 % 3, 'tenant_' || s / 60`
  const refused = PER_MINUTE - ADMITTED_PER_MINUTE
  const counts = (result: string, series: number, count: number) =>
    `INSERT INTO event_counts SELECT minute, ${names}, '${result}', 'local', ${count}
     FROM ${minutes}, generate_series(0, ${series - 1}) AS s`
  return [
    counts('allowed', SERIES, ADMITTED_PER_MINUTE / SERIES),
    counts('refused', refused, 1),
    `INSERT INTO event_overview SELECT minute, rule, endpoint, result, source, sum(count) FROM event_counts
     GROUP BY 1, 2, 3, 4, 5`,
    `INSERT INTO event_limits SELECT minute, ${rule}, 'default', 'enforce', ${ADMITTED_PER_MINUTE / 20}, 17, 0
     FROM ${minutes}, generate_series(0, 19) AS s`,
    `INSERT INTO event_clients SELECT minute, 'user', 'user_' || (minute * 37 + s * 13) % 5000, 30, 1, 2
     FROM ${minutes}, generate_series(1, ${CLIENTS_PER_MINUTE}) AS s`,
    `INSERT INTO event_latency SELECT minute, le_us, 500
     FROM ${minutes}, unnest(ARRAY[${LATENCY_BOUNDS_US}]) AS le_us`,
    'ANALYZE',
  ]
}
