// Every line that the service can log. A log call names an event of this list and passes exactly its fields; level and
// message come from here. docs/reference/log-events.md says what each one means and what to do.

export type LogEventSpec = {
  readonly level: 'debug' | 'info' | 'warn' | 'error' | 'fatal'
  /** Event and consequence. Constant text without values, so that it can be searched for. */
  readonly message: string
  readonly fields: readonly string[]
}

export const LOG_EVENTS = {
  // process
  listening: { level: 'info', message: 'listening', fields: ['address', 'store', 'source', 'rules'] },
  stopping: { level: 'info', message: 'stopping; /readyz returns 503', fields: ['signal', 'drain_ms'] },
  stopped: { level: 'info', message: 'stopped', fields: [] },
  stop_forced: { level: 'error', message: 'stopping took too long; exiting with work left', fields: ['left'] },
  envoy_variables_adopted: {
    level: 'info',
    message: 'variables of envoyproxy/ratelimit give settings',
    fields: ['settings'],
  },
  setting_unknown: { level: 'warn', message: 'variable ignored', fields: ['reason'] },
  check_token_missing: {
    level: 'warn',
    message: 'no token allows checks; every check gets 401',
    fields: ['address', 'fix'],
  },
  internal_error: { level: 'error', message: 'internal error; the request got 500', fields: ['err', 'route'] },
  unhandled_rejection: { level: 'error', message: 'unhandled promise rejection', fields: ['err'] },
  uncaught_exception: { level: 'fatal', message: 'uncaught exception; the process exits', fields: ['err'] },
  worker_failed: { level: 'error', message: 'worker cannot be started or reached', fields: ['err', 'pid'] },
  worker_exited: { level: 'error', message: 'worker exited; starting another one', fields: ['pid', 'code', 'signal'] },
  worker_killed: { level: 'error', message: 'worker did not stop in time; killed', fields: ['pid'] },
  worker_events_lost: {
    level: 'warn',
    message: 'worker exited before its sinks stored all events; they are counted as lost',
    fields: ['pid', 'lost'],
  },
  grpc_listening: { level: 'info', message: 'gRPC listening', fields: ['address', 'stack', 'tls'] },
  connections_refused: {
    level: 'warn',
    message: 'connections refused at a cap',
    fields: ['port', 'cap', 'refused', 'fix'],
  },
  grpc_calls_refused: {
    level: 'warn',
    message: 'gRPC calls refused at a cap; they got REFUSED_STREAM',
    fields: ['cap', 'refused', 'fix'],
  },
  grpc_internal_error: {
    level: 'error',
    message: 'internal error; the gRPC call got INTERNAL',
    fields: ['err', 'method'],
  },
  envoy_config_applied: {
    level: 'info',
    message: 'envoy configuration applied',
    fields: ['path', 'domains'],
  },
  envoy_config_warnings: {
    level: 'warn',
    message: 'envoy configuration has parts without effect',
    fields: ['path', 'warnings'],
  },
  envoy_config_rejected: {
    level: 'error',
    message: 'envoy configuration rejected; the previous one stays active',
    fields: ['path', 'reason'],
  },
  envoy_domains: {
    level: 'info',
    message: 'domains of envoy that have limits',
    fields: ['configured', 'rules', 'others'],
  },
  envoy_shadow_mode: {
    level: 'warn',
    message: 'shadow mode of envoy is on; requests of the envoy configuration are counted, but none is refused',
    fields: [],
  },
  envoy_domain_unlimited: {
    level: 'warn',
    message: 'envoy asks about a domain that neither the configuration nor a rule names; its requests are admitted',
    fields: ['domain', 'fix'],
  },
  certificates_applied: { level: 'info', message: 'certificates applied to new connections', fields: [] },
  certificates_rejected: {
    level: 'error',
    message: 'certificates rejected; the previous ones stay active',
    fields: ['reason'],
  },

  // checks
  check_refused: {
    level: 'debug',
    message: 'check refused',
    fields: ['request_id', 'rule_id', 'limit', 'version', 'keys'],
  },
  bucket_reset: { level: 'info', message: 'bucket reset', fields: ['rule_id', 'by'] },
  receipt_key_unavailable: {
    level: 'warn',
    message: 'receipt key cannot be read from redis; only the admitting node can refund',
    fields: ['reason'],
  },
  forward_auth_misconfigured: {
    level: 'warn',
    message: 'forward auth cannot decide; fix the proxy or --trusted-proxies',
    fields: ['code', 'peer', 'count', 'fix'],
  },
  forward_auth_permit_not_held: {
    level: 'warn',
    message: 'forward auth cannot hold permits; it releases them after the check',
    fields: ['rule_id'],
  },
  kill_switch_changed: { level: 'warn', message: 'kill switch changed', fields: ['disabled', 'kills'] },

  // exceptions
  override_skipped: {
    level: 'error',
    message: 'override is invalid and skipped; the others apply',
    fields: ['override_id', 'reason'],
  },
  bypass_guessing: {
    level: 'warn',
    message: 'too many unknown bypass tokens from one client; its requests with unknown tokens are refused',
    fields: ['key_hash', 'refused'],
  },
  incident_changed: { level: 'warn', message: 'freeze or global factor changed', fields: ['freeze', 'factor'] },

  // store
  breaker_opened: {
    level: 'error',
    message: 'circuit breaker opened for redis; on_fail applies',
    fields: ['store', 'server', 'after_ms', 'reason'],
  },
  breaker_closed: {
    level: 'info',
    message: 'circuit breaker closed for redis',
    fields: ['store', 'server', 'after_ms', 'answered'],
  },
  global_breaker_opened: {
    level: 'error',
    message: 'circuit breaker opened for the global redis; homes and leased units only',
    fields: ['region', 'after_ms'],
  },
  global_breaker_closed: {
    level: 'info',
    message: 'circuit breaker closed for the global redis',
    fields: ['region', 'after_ms'],
  },
  store_unavailable: {
    level: 'error',
    message: 'redis does not answer; on_fail applies',
    fields: ['code', 'reason'],
  },
  store_available: { level: 'info', message: 'redis answers again', fields: [] },
  store_corrupt: {
    level: 'error',
    message: 'redis holds values that cannot be read; checks of these keys fail',
    fields: [],
  },
  store_corrupt_ended: { level: 'info', message: 'no unreadable values were read lately', fields: [] },
  on_fail_decided: {
    level: 'warn',
    message: 'on_fail decided checks instead of redis; see the reasons',
    fields: ['decisions', 'reasons'],
  },
  store_full: {
    level: 'warn',
    message: 'redis is out of memory; on_fail applies to new buckets; raise maxmemory',
    fields: [],
  },
  store_full_ended: { level: 'info', message: 'redis has memory again', fields: [] },
  store_evicting: {
    level: 'warn',
    message: 'redis evicts live buckets and forgets their usage; set maxmemory-policy noeviction and raise maxmemory',
    fields: [],
  },
  store_evicting_ended: { level: 'info', message: 'redis no longer evicts live buckets', fields: [] },
  slot_groups_mismatch: {
    level: 'error',
    message: 'slot groups differ from the record in redis; clients get the limit twice; see --redis-slot-groups',
    fields: [],
  },
  slot_groups_mismatch_ended: {
    level: 'info',
    message: 'slot groups agree with the record in redis again',
    fields: [],
  },
  store_primaries_idle: {
    level: 'warn',
    message: 'redis has more primaries than slot groups; the others stay idle; raise --redis-slot-groups',
    fields: ['store', 'primaries', 'slot_groups'],
  },
  store_may_evict: {
    level: 'warn',
    message: 'redis may evict live buckets when its memory is full; set maxmemory-policy noeviction',
    fields: ['store', 'policy'],
  },
  store_capped: {
    level: 'warn',
    message: 'key cap reached; new keys share overflow buckets',
    fields: [],
  },
  store_capped_ended: { level: 'info', message: 'new keys have buckets of their own again', fields: [] },
  demo_started: {
    level: 'info',
    message: 'demo traffic started; its rules are removed at the end',
    fields: ['seconds', 'by'],
  },
  demo_ended: { level: 'info', message: 'demo traffic ended; its rules are removed', fields: ['by'] },
  drill_started: {
    level: 'warn',
    message: 'drill started; circuit breakers stay open and on_fail applies',
    fields: ['seconds', 'by'],
  },
  drill_ended: { level: 'warn', message: 'drill ended by request', fields: ['by'] },
  drill_unconfirmed: {
    level: 'warn',
    message: 'some workers have not confirmed the drill; they join when they answer',
    fields: ['workers'],
  },

  // rules
  rules_applied: { level: 'info', message: 'rules applied', fields: ['source', 'version', 'rules'] },
  rules_rejected: {
    level: 'error',
    message: 'rules rejected; the last good rules stay active',
    fields: ['source', 'version', 'errors'],
  },
  rule_source_unreachable: {
    level: 'error',
    message: 'rule source unreachable; the last good rules stay active',
    fields: ['source', 'version', 'reason'],
  },
  rule_source_reachable: { level: 'info', message: 'rule source reachable again', fields: ['source'] },
  rules_snapshot_used: {
    level: 'warn',
    message: 'started with the last good rules from the snapshot',
    fields: ['file', 'version'],
  },
  rules_snapshot_failed: { level: 'warn', message: 'rules snapshot cannot be written', fields: ['err', 'file'] },

  // rollouts
  rollouts_applied: { level: 'info', message: 'rollouts applied', fields: ['rollouts', 'rules', 'version'] },
  rollouts_rejected: {
    level: 'error',
    message: 'rollouts rejected; the previous ones stay active',
    fields: ['reason'],
  },
  rollouts_unconfirmed: {
    level: 'error',
    message: 'database has not confirmed the rollouts; the current rules apply to all keys',
    fields: ['seconds'],
  },
  rollouts_confirmed: { level: 'info', message: 'database confirms the rollouts again', fields: [] },
  rollout_moved: {
    level: 'info',
    message: 'proposal changed state',
    fields: ['proposal', 'state', 'sentence'],
  },
  rollout_rolled_back: {
    level: 'error',
    message: 'guard rolled back a rule change',
    fields: ['proposal', 'rules', 'reverted', 'not_reverted', 'reason'],
  },
  rollout_alert: {
    level: 'error',
    message: 'rule change failed the guard; it stays active',
    fields: ['proposal', 'reason'],
  },
  guard_evaluator_started: { level: 'info', message: 'this process evaluates the guard', fields: ['holder'] },
  guard_evaluator_lost: { level: 'info', message: 'another process evaluates the guard', fields: ['holder'] },
  guard_evaluation_failed: {
    level: 'error',
    message: 'guard cannot be evaluated; the rollout holds',
    fields: ['proposal', 'reason'],
  },

  // access
  tokens_applied: { level: 'info', message: 'tokens file applied', fields: ['file', 'tokens'] },
  tokens_rejected: {
    level: 'error',
    message: 'tokens file rejected; the previous tokens stay active',
    fields: ['file', 'reasons'],
  },
  approvals_differ: {
    level: 'warn',
    message: 'the database requires more approvals than --approvals; the number of the database applies',
    fields: ['wanted', 'required'],
  },
  jwt_unverified: {
    level: 'warn',
    message: 'JWTs are not verified, so clients can claim any identity; set --jwt-key or --jwt-secret',
    fields: [],
  },

  // database
  database_creating: {
    level: 'info',
    message: 'creating the embedded database; the first start takes some seconds',
    fields: ['folder'],
  },
  table_unreachable: {
    level: 'error',
    message: 'table cannot be read; the last known rows apply',
    fields: ['table', 'reason'],
  },
  content_not_understood: {
    level: 'error',
    message: 'content of a newer version is not understood; this node is degraded',
    fields: ['where', 'items', 'consequence'],
  },
  content_understood: { level: 'info', message: 'all content is understood again', fields: ['where'] },
  table_reachable: { level: 'info', message: 'table can be read again', fields: ['table'] },
  table_copy_used: {
    level: 'warn',
    message: 'started with the copy of the table on disk',
    fields: ['table', 'file'],
  },
  table_copy_missing: {
    level: 'warn',
    message: 'no copy of the table on disk; the table is empty until the database answers',
    fields: ['table', 'file'],
  },
  table_copy_failed: {
    level: 'warn',
    message: 'copy of the table cannot be written to disk',
    fields: ['table', 'file', 'reason'],
  },
  retention_applied: {
    level: 'info',
    message: 'rows past their retention deleted',
    fields: ['table', 'deleted', 'before'],
  },
  retention_failed: {
    level: 'warn',
    message: 'rows past their retention cannot be deleted; retrying later',
    fields: ['table', 'reason'],
  },

  // events
  events_sink_down: {
    level: 'error',
    message: 'sink does not store events; they stay queued up to a cap',
    fields: ['sink', 'reason'],
  },
  events_sink_up: { level: 'info', message: 'sink stores events again', fields: ['sink'] },
  events_dropped: {
    level: 'warn',
    message: 'sink cannot keep up; events are dropped, totals stay exact',
    fields: ['sink'],
  },
  event_counts_failed: {
    level: 'error',
    message: 'event counts cannot be written; if this worker is killed, its events are in no counter',
    fields: ['reason'],
  },
  event_failed: {
    level: 'error',
    message: 'a decision could not be recorded; it is counted as dropped',
    fields: ['err'],
  },
  events_batch_rejected: {
    level: 'error',
    message: 'sink rejected a batch of events; it is dropped',
    fields: ['sink', 'events', 'reason'],
  },
  events_dropped_at_close: {
    level: 'warn',
    message: 'sink did not store all events and totals before the process ended',
    fields: ['sink', 'events', 'decisions'],
  },

  // gateway and webhooks
  upstream_unreachable: {
    level: 'error',
    message: 'upstream unreachable; requests get 502',
    fields: ['upstream', 'reason'],
  },
  upstream_slow: { level: 'error', message: 'upstream timed out; requests get 504', fields: ['upstream', 'reason'] },
  upstream_recovered: { level: 'info', message: 'upstream answers again', fields: ['upstream'] },
  webhook_failed: {
    level: 'warn',
    message: 'webhook delivery failed; retrying for about an hour',
    fields: ['type', 'host', 'reason'],
  },

  // telemetry
  otlp_export_failed: {
    level: 'warn',
    message: 'OTLP export failed; telemetry is lost until the receiver answers, checks are unaffected',
    fields: ['signal', 'host', 'reason'],
  },
  otlp_export_recovered: { level: 'info', message: 'OTLP export succeeds again', fields: ['signal', 'host'] },
} as const

export type LogEvent = keyof typeof LOG_EVENTS

/** Exactly the fields of an event. */
export type LogFields<E extends LogEvent> = Readonly<Record<(typeof LOG_EVENTS)[E]['fields'][number], unknown>>
