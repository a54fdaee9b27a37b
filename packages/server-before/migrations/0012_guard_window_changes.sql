-- When the row was written last: the evaluator of the guard reads rows that changed, however late a node writes them.
ALTER TABLE guard_windows ADD COLUMN changed_at timestamptz NOT NULL DEFAULT clock_timestamp();
CREATE INDEX guard_windows_changed ON guard_windows (proposal_id, changed_at);
