-- Views with the names and columns of the design documents: docs/reference/source-documents.md.
-- Compatible: no node reads or writes them.

-- One row per limit of a rule, and per limit of each of its plans. Omitted fields have their defaults. A rule or plan
-- without limits has one row whose numbers are NULL. `is_active`: whether the rule can refuse a request now.
CREATE VIEW rate_limit_rules AS
WITH per_plan AS (
  SELECT rule_id, rule, rule->>'plan' AS plan, coalesce(rule->'limits', jsonb_build_array(rule - 'name')) AS limits
  FROM rules
  UNION ALL
  -- A plan inherits the numbers that it omits; the burst only together with the limit.
  SELECT rule_id, rule, by_plan.key, CASE jsonb_typeof(by_plan.value)
      WHEN 'array' THEN by_plan.value
      WHEN 'object' THEN coalesce(by_plan.value->'limits', jsonb_build_array(
        (CASE WHEN NOT rule ? 'limits' THEN rule
              WHEN jsonb_array_length(rule->'limits') = 1 THEN rule->'limits'->0
              ELSE '{}' END)
          - 'name'
          - CASE WHEN by_plan.value ? 'limit' THEN ARRAY['burst'] ELSE ARRAY[]::text[] END
          - CASE WHEN by_plan.value ?| ARRAY['window', 'window_seconds'] THEN ARRAY['window', 'window_seconds']
                 ELSE ARRAY[]::text[] END
          || by_plan.value))
      ELSE '[]' END
  FROM rules, jsonb_each(rule->'by_plan') AS by_plan
), per_limit AS (
  SELECT per_plan.rule_id, rule, plan, fields.value->>'name' AS limit_name,
    CASE WHEN jsonb_typeof(fields.value->'limit') = 'number' THEN (fields.value->>'limit')::bigint END AS limit_count,
    coalesce((fields.value->>'window_seconds')::float8,
      extract(epoch FROM (fields.value->>'window')::interval)::float8) AS window_seconds,
    (fields.value->>'burst')::bigint AS burst,
    coalesce(rule->>'algorithm', 'token_bucket') AS algorithm,
    CASE jsonb_typeof(rule->'scope')
      WHEN 'array' THEN ARRAY(SELECT jsonb_array_elements_text(rule->'scope'))
      WHEN 'string' THEN array_remove(ARRAY[regexp_replace(rule->>'scope', '^per_', '')], 'global')
      ELSE ARRAY[]::text[] END AS facts
  FROM per_plan LEFT JOIN jsonb_array_elements(limits) AS fields ON true
)
SELECT
  rule_id AS id,
  rule_id,
  coalesce(rule->>'name', rule_id) AS name,
  rule->>'description' AS description,
  coalesce((SELECT string_agg(fact || ':{' || fact || '}', ':') FROM unnest(facts) AS fact), 'global') AS key_pattern,
  coalesce(rule->>'endpoint_pattern', '/**') AS endpoint_pattern,
  CASE jsonb_typeof(rule->'method')
    WHEN 'array' THEN (SELECT string_agg(method, ',') FROM jsonb_array_elements_text(rule->'method') AS method)
    ELSE rule->>'method' END AS http_method,
  CASE jsonb_typeof(rule->'scope')
    WHEN 'array' THEN array_to_string(facts, '+')
    ELSE coalesce(rule->>'scope', 'global') END AS scope,
  algorithm,
  coalesce(limit_name, 'default') AS limit_name,
  limit_count,
  CASE WHEN limit_count IS NOT NULL THEN window_seconds END AS window_seconds,
  CASE WHEN algorithm <> 'concurrency' THEN limit_count / window_seconds END AS rate_per_second,
  CASE WHEN limit_count IS NOT NULL THEN coalesce(burst, limit_count) END AS burst_capacity,
  plan,
  coalesce((rule->>'priority')::integer, 0) AS priority,
  coalesce((rule->>'enabled')::boolean, true)
    AND coalesce(rule->>'mode', 'enforce') = 'enforce'
    AND coalesce((rule->>'expires_at')::timestamptz > now(), true)
    AND NOT EXISTS (SELECT FROM kills WHERE kills.rule_id IN ('', per_limit.rule_id)) AS is_active,
  (rule->>'created_at')::timestamptz AS created_at,
  (rule->>'updated_at')::timestamptz AS updated_at
FROM per_limit;

CREATE VIEW rate_limit_violations AS
  SELECT violation_id, bucket_key, user_id, ip_address, endpoint, requested_at, tokens_at_time, rule_id FROM violations;
