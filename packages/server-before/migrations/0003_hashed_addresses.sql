-- Where violations name clients by keyed hashes, `ip_address` is null and this column holds the hash of the address.
ALTER TABLE violations ADD COLUMN ip_hash text;
CREATE INDEX violations_by_ip_hash ON violations (ip_hash, requested_at DESC);
