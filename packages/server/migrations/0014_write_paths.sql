-- Rollbacks, and tokens that wait for approval.

-- `content`: hash of the rules without metadata. `position`: place in the history, at which a rollback stands again.
-- NULL: that of `version`. The predecessor of a version is the one before its position.
ALTER TABLE rule_versions ADD COLUMN content text, ADD COLUMN position bigint;

-- Hash of a rule without its metadata; NULL for no rule.
CREATE FUNCTION rule_content(rule jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT md5((nullif(rule, 'null'::jsonb) - 'version' - 'created_at' - 'updated_at')::text)
$$;

-- Rules that a rollback took out of force, until an edit writes the same rule again. `content` is empty if the rollback
-- brought back a deleted rule: then its deletion was withdrawn.
CREATE TABLE withdrawn_rules (
  rule_id text COLLATE "C" NOT NULL,
  content text NOT NULL,
  PRIMARY KEY (rule_id, content)
);

-- Tokens that wait for approval: moved to api_tokens by the last one. A table of their own, because nodes of earlier
-- versions accept every row of api_tokens. `waits_until`: deleted after this time.
CREATE TABLE pending_tokens (
  id          text PRIMARY KEY,
  name        text NOT NULL,
  role        text NOT NULL,
  hash        text NOT NULL UNIQUE,
  created_by  text NOT NULL,
  created_at  timestamptz NOT NULL,
  expires_at  timestamptz,
  waits_until timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- `request_hash`: content of the request that made the proposal; `request_key`: its Idempotency-Key.
ALTER TABLE proposals ADD COLUMN request_hash text, ADD COLUMN request_key text;
CREATE INDEX proposals_by_author ON proposals (author, created_at DESC);
