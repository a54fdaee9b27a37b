// Features of earlier versions, which do not report them. Constants of history: a new feature never belongs here.

/** Nodes that write no report, and so know no exceptions and no rollouts. */
export const WITHOUT_REPORTS: ReadonlySet<string> = new Set(
  `rule.rule_id rule.name rule.description rule.created_at rule.updated_at rule.expires_at rule.version
   rule.endpoint_pattern rule.method rule.plan rule.when rule.scope rule.algorithm rule.algorithm=token_bucket
   rule.algorithm=leaky_bucket rule.algorithm=fixed_window rule.algorithm=sliding_window
   rule.algorithm=sliding_window_log rule.algorithm=concurrency rule.limit rule.window_seconds rule.window rule.burst
   rule.limits rule.limits.name rule.limits.limit rule.limits.window_seconds rule.limits.window rule.limits.burst
   rule.by_plan rule.by_plan.name rule.by_plan.limit rule.by_plan.window_seconds rule.by_plan.window
   rule.by_plan.burst rule.by_plan.limits rule.cost rule.group rule.priority rule.on_missing rule.on_missing=skip
   rule.on_missing=refuse rule.on_missing=by_ip rule.consistency rule.consistency=strict rule.consistency=leased
   rule.consistency=approximate rule.consistency=local rule.lease rule.lease.max_units rule.lease.max_share
   rule.lease.ttl_ms rule.approximate rule.approximate.sync_ms rule.approximate.max_unsynced rule.intent
   rule.intent=fairness rule.intent=abuse rule.on_fail rule.on_fail=open rule.on_fail=closed rule.on_fail=local
   rule.shards rule.store rule.spread rule.spread=regional rule.spread=global rule.enforce_at rule.enforce_at=edge
   rule.enforce_at=service rule.enforce_at=any rule.mode rule.mode=enforce rule.mode=shadow rule.enabled
   redis.packed redis.log redis.permits kill_switch role.check role.viewer role.editor role.approver role.admin
   migration.0001_tables migration.0002_kill_switch migration.0003_hashed_addresses migration.0004_decisions`.split(
    /\s+/,
  ),
)

/** Nodes whose report does not say what they understand. */
export const WITHOUT_FEATURES: ReadonlySet<string> = new Set([
  ...WITHOUT_REPORTS,
  ...`rule.on_signal rule.on_signal.factor rule.on_signal.min_severity override.limit override.factor override.ban
   override.exempt bypass_token signal.low signal.medium signal.high signal.critical global_factor freeze
   rollout.shadow rollout.canary rollout.guard migration.0005_audit_filters migration.0006_events
   migration.0007_rollouts migration.0008_exceptions migration.0009_replay migration.0010_nodes
   migration.0011_event_overview migration.0012_guard_window_changes`.split(/\s+/),
])
