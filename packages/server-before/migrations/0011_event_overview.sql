-- Counts of decisions without plan and tenant: few rows per minute, for queries over days.
CREATE TABLE event_overview (
  minute   integer NOT NULL,
  rule     text NOT NULL,
  endpoint text NOT NULL,
  result   text NOT NULL,
  source   text NOT NULL,
  count    bigint NOT NULL,
  PRIMARY KEY (minute, rule, endpoint, result, source)
);

INSERT INTO event_overview
  SELECT minute, rule, endpoint, result, source, sum(count) FROM event_counts
  GROUP BY minute, rule, endpoint, result, source;
