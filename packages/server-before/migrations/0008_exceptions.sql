-- Exceptions to rules: overrides, bypass tokens, abuse signals and the global factor. `recorded_at` is database time, by
-- which approvals compare the ages of tokens.

-- A change of overrides locks this row first, so that revisions are committed in their order. `purged` is the highest
-- revision of a removed override whose row is deleted: a node that has read less reads all overrides again.
CREATE TABLE override_revision (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  revision bigint NOT NULL,
  purged   bigint NOT NULL
);
INSERT INTO override_revision (revision, purged) VALUES (0, 0);

-- state: pending (needs approvals), active, removed. `rule_id` null: every rule whose key starts with the fact. At most
-- one active row per rule, key and slot (ban, exempt, or the limit that it changes). `expires_at` null: never.
CREATE TABLE overrides (
  override_id text COLLATE "C" PRIMARY KEY,
  revision    bigint NOT NULL,
  state       text NOT NULL,
  rule_id     text,
  fact        text NOT NULL,
  owner       text NOT NULL,
  slot        text NOT NULL,
  effect      jsonb NOT NULL,
  reason      text NOT NULL,
  actor       text NOT NULL,
  created_at  timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz,
  removed_at  timestamptz
);
CREATE INDEX overrides_by_revision ON overrides (revision);
CREATE INDEX overrides_by_key ON overrides (md5(owner));
CREATE INDEX overrides_by_rule ON overrides (rule_id, override_id DESC);
CREATE INDEX overrides_by_expiry ON overrides (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX overrides_removed ON overrides (removed_at) WHERE removed_at IS NOT NULL;

-- state: pending, active. `rules` and `paths` null: no restriction. `audited_uses`: uses that the audit log reports.
CREATE TABLE bypass_tokens (
  bypass_id        text PRIMARY KEY,
  name             text NOT NULL,
  state            text NOT NULL,
  rules            jsonb,
  paths            jsonb,
  limit_per_minute bigint NOT NULL,
  reason           text,
  actor            text NOT NULL,
  created_at       timestamptz NOT NULL,
  recorded_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at       timestamptz NOT NULL,
  revoked_at       timestamptz,
  uses             bigint NOT NULL DEFAULT 0,
  last_used_at     timestamptz,
  audited_uses     bigint NOT NULL DEFAULT 0,
  audited_at       timestamptz
);

-- Secrets of bypass tokens: two while one is rotated. `ends_at` null: as long as its token is valid.
CREATE TABLE bypass_secrets (
  hash       text PRIMARY KEY,
  bypass_id  text NOT NULL REFERENCES bypass_tokens,
  created_at timestamptz NOT NULL,
  ends_at    timestamptz
);
CREATE INDEX bypass_secrets_by_token ON bypass_secrets (bypass_id);

-- One row per key, kind and severity; a repeated signal extends it. `evidence`: figures of a built-in detector.
CREATE TABLE signals (
  signal_id  text COLLATE "C" PRIMARY KEY,
  fact       text NOT NULL,
  owner      text NOT NULL,
  kind       text NOT NULL,
  severity   text NOT NULL,
  source     text,
  actor      text NOT NULL,
  evidence   jsonb,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL
);
CREATE INDEX signals_by_key ON signals (md5(owner));
CREATE INDEX signals_by_expiry ON signals (expires_at);

-- state: pending, active, ended. At most one is active.
CREATE TABLE global_factors (
  factor_id   text COLLATE "C" PRIMARY KEY,
  state       text NOT NULL,
  factor      double precision NOT NULL,
  reason      text NOT NULL,
  actor       text NOT NULL,
  created_at  timestamptz NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz NOT NULL
);

ALTER TABLE events ADD COLUMN override_id text;
ALTER TABLE events ADD COLUMN bypass_id text;
ALTER TABLE events ADD COLUMN signal text;
