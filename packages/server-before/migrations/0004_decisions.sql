-- The newest decisions of all nodes, for those that count in memory: with Redis they are there. A row is taken over by a
-- later decision whose id falls into the same slot, so there are never more than slots.
CREATE TABLE decisions (
  slot       integer PRIMARY KEY,
  decision   text NOT NULL,
  decided_at timestamptz NOT NULL
);
