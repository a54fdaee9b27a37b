-- Events carry what a replay needs: store time in microseconds, their number in the process, and their sample. Refunds
-- and resets are events, too. An admission rate of 0 is unknown: events of earlier versions cannot be replayed.

ALTER TABLE events
  ADD COLUMN operation       text NOT NULL DEFAULT 'check',
  ADD COLUMN store_time_us   bigint NOT NULL DEFAULT 0,
  ADD COLUMN sequence        bigint NOT NULL DEFAULT 0,
  ADD COLUMN request_cost    double precision,
  ADD COLUMN attributes      text,
  ADD COLUMN admission_rate  double precision NOT NULL DEFAULT 0,
  ADD COLUMN sample_position double precision;
