-- The last transaction of each writer that was committed: see `writers`.

-- name: register_writer
INSERT INTO commits (writer, last) VALUES (:writer, 0) ON CONFLICT (writer) DO NOTHING

-- name: forget_old_writers
DELETE FROM commits WHERE at < now() - interval '7 days'

-- name: forget_writer
DELETE FROM commits WHERE writer = :writer

-- The server must not end COMMIT: it would give up waiting for a synchronous standby, and acknowledge.
-- name: finish_transaction
WITH noted AS (
    INSERT INTO commits (writer, last) VALUES (:writer, :mark)
    ON CONFLICT (writer) DO UPDATE SET last = excluded.last, at = now()
)
SELECT
    set_config('statement_timeout', '0', true),
    CASE WHEN :text IS NOT NULL THEN pg_notify('askback', :text) END

-- The row is locked until the transaction whose end is unknown is over.
-- name: last_committed
SELECT last FROM commits WHERE writer = :writer FOR UPDATE
