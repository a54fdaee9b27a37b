-- Reports of nodes, one row per process, replaced every few seconds. Not logged: they are worthless after a crash.
CREATE UNLOGGED TABLE nodes (
  process text PRIMARY KEY,
  reported_at timestamptz NOT NULL,
  report text NOT NULL
);
