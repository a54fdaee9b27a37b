-- What the kill switch has taken out of force: rules by their id, and everything by the empty text.
CREATE TABLE kills (
  rule_id text PRIMARY KEY,
  since   timestamptz NOT NULL,
  actor   text NOT NULL,
  reason  text
);
