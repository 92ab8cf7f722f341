-- All times are those of the database.

-- name: register_instance
INSERT INTO programs (name, kind, host, pid, boot_id, version, lease_until, doc)
VALUES (:name, :kind, :host, :pid, :boot_id, :version, now() + make_interval(secs => :lease_sec), :doc)
RETURNING clock_timestamp()

-- Nothing if the lease is over.
-- name: renew_lease
UPDATE programs SET lease_until = now() + make_interval(secs => :lease_sec), doc = :doc
WHERE name = :name AND lease_until > now()
RETURNING clock_timestamp(), {oldest_format}, {oldest_queue_step}

-- name: oldest_formats
SELECT {oldest_format}, {oldest_queue_step}

-- name: living_names
SELECT name, boot_id FROM programs
WHERE name IN (SELECT value FROM json_each(:names) AS names (value)) AND lease_until > now()

-- name: known_instances
SELECT name, kind, host, pid, boot_id, version, doc, started_at, lease_until, lease_until > now() AS alive
FROM programs ORDER BY started_at, name

-- name: remove_instances
DELETE FROM programs WHERE name IN (SELECT value FROM json_each(:names) AS names (value))

-- name: forget_dead_instances
DELETE FROM programs WHERE lease_until < now() - interval '1 minute'

-- name: take_lock
SELECT pg_try_advisory_lock(hashtextextended(:lock, 0))

-- Ends the session that holds the lock, unless it belongs to another program that is alive.
-- name: evict_holder
SELECT pg_terminate_backend(held.pid, 1000)
FROM pg_locks AS held JOIN pg_stat_activity AS holder ON holder.pid = held.pid
WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted
  AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((held.classid::bigint << 32) | held.objid::bigint) = hashtextextended(:lock, 0)
  AND held.pid <> pg_backend_pid()
  AND (holder.application_name = :own_session OR NOT EXISTS (
      SELECT 1 FROM programs WHERE lease_until > now() AND holder.application_name = 'askback ' || name
  ))
