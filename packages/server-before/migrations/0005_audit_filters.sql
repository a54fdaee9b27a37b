-- Indexes for lists of audit entries by actor, action and time; the one by target exists. The C collation serves
-- prefixes of actions (rule.*) as ranges.
CREATE INDEX audit_by_actor ON audit (actor, seq DESC);
CREATE INDEX audit_by_action ON audit (action COLLATE "C", seq DESC);
CREATE INDEX audit_by_time ON audit (at);
