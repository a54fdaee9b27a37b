-- Share of paired keys per rule of a proposal. `pair_share` remains for nodes of earlier versions.
ALTER TABLE proposals ADD COLUMN pair_shares jsonb NOT NULL DEFAULT '{}';
ALTER TABLE proposals ALTER COLUMN pair_share SET DEFAULT 0.01;
