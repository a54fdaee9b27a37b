-- Decision events and their rollups. The violations become a view of the events that were refused.

CREATE TABLE events (
  id                bigserial PRIMARY KEY,
  event_id          uuid NOT NULL,
  at                timestamptz NOT NULL,
  request_id        text NOT NULL,
  client_id         text,
  api_key           text,
  ip                text,
  tenant            text,
  plan              text,
  method            text,
  endpoint          text,
  endpoint_pattern  text NOT NULL,
  rule_id           text,
  limit_name        text,
  scope             text,
  mode              text,
  shadow_refused_by text,
  bucket_key        text NOT NULL,
  allowed           boolean NOT NULL,
  current_count     double precision,
  limit_count       double precision,
  remaining         double precision,
  cost              double precision NOT NULL,
  retry_after_ms    double precision,
  version           bigint NOT NULL,
  source            text NOT NULL,
  region            text,
  node              text NOT NULL,
  decision_us       double precision NOT NULL,
  sample_rate       double precision NOT NULL
);
CREATE INDEX events_by_time ON events (at);
CREATE INDEX events_by_client ON events (client_id, at DESC) WHERE client_id IS NOT NULL;
CREATE INDEX events_by_ip ON events (ip, at DESC) WHERE ip IS NOT NULL;
CREATE INDEX events_refused_by_rule ON events (rule_id, at DESC) WHERE NOT allowed;
CREATE INDEX events_allowed ON events (id) WHERE allowed;
CREATE INDEX events_refused ON events (id) WHERE NOT allowed;

INSERT INTO events (id, event_id, at, request_id, client_id, ip, endpoint, endpoint_pattern, rule_id, mode, bucket_key,
    allowed, remaining, cost, version, source, node, decision_us, sample_rate)
  SELECT violation_id, gen_random_uuid(), requested_at, '', user_id, coalesce(host(ip_address), ip_hash), endpoint,
    'none', rule_id, 'enforce', bucket_key, false, tokens_at_time, 1, 0, 'store', '', 0, 1
  FROM violations;
SELECT setval('events_id_seq', greatest(1, (SELECT coalesce(max(id), 0) FROM events)));
DROP TABLE violations;

CREATE VIEW violations AS
  SELECT id AS violation_id, bucket_key, client_id AS user_id, ip AS ip_address, endpoint, at AS requested_at,
    coalesce(remaining, 0) AS tokens_at_time, rule_id
  FROM events WHERE NOT allowed;

-- Rollups per minute. `minute` is the number of minutes since the epoch.
CREATE TABLE event_counts (
  minute   integer NOT NULL,
  rule     text NOT NULL,
  endpoint text NOT NULL,
  plan     text NOT NULL,
  tenant   text NOT NULL,
  result   text NOT NULL,
  source   text NOT NULL,
  count    bigint NOT NULL,
  PRIMARY KEY (minute, rule, endpoint, plan, tenant, result, source)
);

CREATE TABLE event_limits (
  minute     integer NOT NULL,
  rule       text NOT NULL,
  limit_name text NOT NULL,
  mode       text NOT NULL,
  allowed    bigint NOT NULL,
  refused    bigint NOT NULL,
  near_limit bigint NOT NULL,
  PRIMARY KEY (minute, rule, limit_name, mode)
);

CREATE TABLE event_clients (
  minute     integer NOT NULL,
  kind       text NOT NULL,
  client     text NOT NULL,
  allowed    bigint NOT NULL,
  refused    bigint NOT NULL,
  near_limit bigint NOT NULL,
  PRIMARY KEY (minute, kind, client)
);
CREATE INDEX event_clients_by_client ON event_clients (client, kind, minute);

CREATE TABLE event_latency (
  minute integer NOT NULL,
  le_us  integer NOT NULL,
  count  bigint NOT NULL,
  PRIMARY KEY (minute, le_us)
);

-- The last batch of each producer, written with the batch: a retry finds out whether the batch was stored.
CREATE TABLE event_producers (
  producer text PRIMARY KEY,
  seq      bigint NOT NULL,
  at       timestamptz NOT NULL
);

-- Fingerprint of the secret that hashes client keys: nodes with another one hash differently.
CREATE TABLE key_fingerprint (
  only_row    boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  fingerprint text NOT NULL
);
