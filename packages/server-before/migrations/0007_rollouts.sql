-- Proposals of rule changes, their approvals and rollouts, and the figures of the guard.

-- The token that created a token, from now on and, where the audit log has it, until now. `recorded_at` is database
-- time: the clocks of nodes must not decide whether a token is older than a proposal.
ALTER TABLE api_tokens ADD COLUMN created_by text, ADD COLUMN recorded_at timestamptz;
UPDATE api_tokens SET recorded_at = least(created_at, clock_timestamp()),
  created_by = (SELECT actor FROM audit WHERE action = 'token.create' AND target = api_tokens.id ORDER BY seq LIMIT 1);
ALTER TABLE api_tokens ALTER COLUMN recorded_at SET DEFAULT clock_timestamp(), ALTER COLUMN recorded_at SET NOT NULL;

-- Number of approvals that a change needs.
CREATE TABLE approvals_required (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  required integer NOT NULL
);
INSERT INTO approvals_required (required) VALUES (0);

-- Approvals of proposals, overrides and bypass tokens. `attempt`: a retry after a rollback needs approvals of its own.
CREATE TABLE approvals (
  kind       text NOT NULL,
  subject_id text NOT NULL,
  attempt    integer NOT NULL,
  token_id   text NOT NULL,
  at         timestamptz NOT NULL,
  PRIMARY KEY (kind, subject_id, attempt, token_id)
);

-- State of an incident: one row.
CREATE TABLE incident (
  only_row     boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  frozen_since timestamptz,
  frozen_by    text,
  frozen_why   text
);
INSERT INTO incident DEFAULT VALUES;

-- `kind`: change is staged, edit was applied and is under guard. `revision` grows with each write, over all rows.
CREATE SEQUENCE proposal_revisions;
CREATE TABLE proposals (
  id             text PRIMARY KEY,
  kind           text NOT NULL,
  state          text NOT NULL,
  author         text NOT NULL,
  reason         text,
  base_version   bigint NOT NULL,
  changes        jsonb NOT NULL,
  steps          jsonb NOT NULL,
  guard          jsonb NOT NULL,
  step           integer NOT NULL DEFAULT 0,
  step_at        timestamptz,
  paused_at      timestamptz,
  paused_why     text,
  attempt        integer NOT NULL DEFAULT 1,
  salt           text NOT NULL,
  pair_share     double precision NOT NULL,
  verdict        jsonb,
  sentence       text NOT NULL,
  done_version   bigint,
  created_at     timestamptz NOT NULL,
  updated_at     timestamptz NOT NULL,
  started_at     timestamptz,
  ended_at       timestamptz,
  revision       bigint NOT NULL
);
CREATE INDEX proposals_by_creation ON proposals (created_at DESC, id);
CREATE INDEX proposals_rolling_out ON proposals (id) WHERE state = 'rolling_out';

-- One open rollout per rule: the primary key enforces it.
CREATE TABLE rollouts (
  rule_id     text COLLATE "C" PRIMARY KEY,
  proposal_id text NOT NULL
);

-- Figures of one node and one window. `rule_id` is empty for figures of the node itself.
CREATE TABLE guard_windows (
  proposal_id  text NOT NULL,
  rule_id      text NOT NULL,
  window_ms    bigint NOT NULL,
  node         text NOT NULL,
  figures      jsonb NOT NULL,
  PRIMARY KEY (proposal_id, rule_id, window_ms, node)
);

-- The process that evaluates the guard, until its lease ends.
CREATE TABLE guard_evaluator (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  holder   text NOT NULL,
  until    timestamptz NOT NULL
);
INSERT INTO guard_evaluator (holder, until) VALUES ('', to_timestamp(0));

-- Webhook events of transitions, sent by a node with webhooks.
CREATE TABLE rollout_events (
  id   bigserial PRIMARY KEY,
  type text NOT NULL,
  data jsonb NOT NULL,
  at   timestamptz NOT NULL
);
