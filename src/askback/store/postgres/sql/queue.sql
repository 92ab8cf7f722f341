-- The jobs of Procrastinate are made, fetched and finished by its own functions. What these do not offer is here.

-- A name has no limit, so the index is a hash.
-- name: index_runs
CREATE INDEX IF NOT EXISTS queue_jobs_of_runs ON procrastinate_jobs USING hash ((args ->> 'run'))

-- name: index_fetched
CREATE INDEX IF NOT EXISTS queue_jobs_fetched ON procrastinate_jobs (worker_id, id) WHERE status = 'doing'

-- name: hand_over
UPDATE procrastinate_jobs SET queue_name = :lane
WHERE args ->> 'run' = :id AND (args ->> 'epoch')::bigint = :epoch AND status = 'todo'
RETURNING id

-- name: forget
DELETE FROM procrastinate_jobs WHERE args ->> 'run' = :id

-- name: remove_job
DELETE FROM procrastinate_jobs WHERE id = :job RETURNING args ->> 'run', (args ->> 'epoch')::bigint

-- name: still_queued
SELECT doc FROM runs WHERE id = :id AND epoch = :epoch AND state = 'queued' FOR SHARE

-- name: fetched_by
SELECT id, args ->> 'run' FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = :fetcher

-- A fetched job is justified for a moment, until the run is claimed, and then as long as a worker holds the run.
-- name: remove_stalled
DELETE FROM procrastinate_jobs AS jobs
WHERE jobs.status = 'doing'
    AND (
        jobs.worker_id IS NULL
        OR NOT EXISTS (
            SELECT 1 FROM procrastinate_events AS events
            WHERE events.job_id = jobs.id AND events.type = 'started' AND events.at > now() - make_interval(secs => :patience_sec)
        )
    )
    AND NOT EXISTS (
        SELECT 1 FROM runs
        WHERE runs.id = jobs.args ->> 'run' AND runs.epoch = (jobs.args ->> 'epoch')::bigint + 1 AND runs.worker IS NOT NULL
    )
RETURNING jobs.id

-- name: without_job
SELECT runs.doc
FROM runs
WHERE runs.state = 'queued'
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS jobs
        WHERE jobs.args ->> 'run' = runs.id AND (jobs.args ->> 'epoch')::bigint = runs.epoch
            AND jobs.status IN ('todo', 'doing')
    )
ORDER BY runs.number
LIMIT :limit

-- name: forget_workers
DELETE FROM procrastinate_workers WHERE last_heartbeat < now() - make_interval(secs => :patience_sec)
