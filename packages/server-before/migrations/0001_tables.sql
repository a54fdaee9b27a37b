-- Rules, their versions, API tokens, the audit and violations.

-- The rules of the set in force, one row each. `revision` is the version of the set that last changed the row.
CREATE TABLE rules (
  rule_id  text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL,
  rule     jsonb NOT NULL
);

-- Every version of the set as a whole: what a rollback goes back to. `rules` is null once too many others came after it.
CREATE TABLE rule_versions (
  version    bigint PRIMARY KEY,
  rules      jsonb,
  rule_count integer NOT NULL,
  actor      text NOT NULL,
  reason     text,
  created_at timestamptz NOT NULL
);

-- The version in force: one row, and whoever changes rules locks it first.
CREATE TABLE rules_in_force (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version  bigint NOT NULL
);
INSERT INTO rules_in_force (version) VALUES (0);

CREATE TABLE api_tokens (
  id           text PRIMARY KEY,
  name         text NOT NULL,
  role         text NOT NULL,
  hash         text NOT NULL UNIQUE,
  created_at   timestamptz NOT NULL,
  expires_at   timestamptz,
  revoked_at   timestamptz,
  last_used_at timestamptz
);

-- Each row carries a hash of itself and of the row before; the head tells which row is the last.
-- `diff` is JSON kept as text, because its hash is that of the text.
CREATE TABLE audit (
  seq    bigint PRIMARY KEY,
  at     timestamptz NOT NULL,
  actor  text NOT NULL,
  action text NOT NULL,
  target text NOT NULL,
  diff   text NOT NULL,
  reason text,
  hash   text NOT NULL
);
CREATE INDEX audit_by_target ON audit (target, seq DESC);

CREATE TABLE audit_head (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  seq      bigint NOT NULL,
  hash     text NOT NULL
);
INSERT INTO audit_head (seq, hash) VALUES (0, '');

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of audit are never changed';
END $$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- No reference to rules: a violation outlives the rule.
CREATE TABLE violations (
  violation_id   bigserial PRIMARY KEY,
  bucket_key     text NOT NULL,
  user_id        text,
  ip_address     inet,
  endpoint       text,
  requested_at   timestamptz NOT NULL,
  tokens_at_time double precision NOT NULL,
  rule_id        text
);
CREATE INDEX violations_by_user ON violations (user_id, requested_at DESC);
CREATE INDEX violations_by_ip ON violations (ip_address, requested_at DESC);
CREATE INDEX violations_by_rule ON violations (rule_id, requested_at DESC);
CREATE INDEX violations_by_time ON violations (requested_at);
