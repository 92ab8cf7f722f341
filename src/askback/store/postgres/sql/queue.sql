-- The jobs of Procrastinate are made, fetched and finished by its own functions. What these do not offer is here.

-- A name has no limit, so the index is a hash.
-- name: index_runs
CREATE INDEX IF NOT EXISTS queue_jobs_of_runs ON procrastinate_jobs USING hash ((args ->> 'run'))

-- name: index_fetched
CREATE INDEX IF NOT EXISTS queue_jobs_fetched ON procrastinate_jobs (worker_id, id) WHERE status = 'doing'

-- `< 'doing'` is `todo`, and no other index of Procrastinate has these expressions: so this one is used for every fetch, also
-- before the server has statistics of the table.
-- name: index_parties
CREATE INDEX IF NOT EXISTS queue_jobs_of_parties ON procrastinate_jobs
    ((queue_name || ''), (coalesce(args ->> 'party', '') COLLATE "C"), priority DESC, id) WHERE status < 'doing'

-- Each job would send two notifications, which nobody listens to: workers hear of the run.
-- name: quiet_jobs
ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1

-- As `procrastinate_fetch_job`, in another order: see `core.queue`. The party that is served goes to the end.
-- `lanes` has every lane once for each party with jobs in it, and each step of it is one look into the index. `round`: a
-- party gets its next job when each of the others has had one.
-- Another worker that fetches at the same moment skips the job and takes one of the next: so there are 16 candidates.
-- name: fetch_job
WITH RECURSIVE lanes (lane, engine, party) AS (
    SELECT given.key, given.value, (
        SELECT {party} FROM procrastinate_jobs AS jobs
        WHERE {is_waiting} AND {lane} = given.key
        ORDER BY {party}
        LIMIT 1
    )
    FROM jsonb_each_text(:lanes::jsonb) AS given
    UNION ALL
    SELECT lanes.lane, lanes.engine, (
        SELECT {party} FROM procrastinate_jobs AS jobs
        WHERE {is_waiting} AND {lane} = lanes.lane AND {party} > lanes.party
        ORDER BY {party}
        LIMIT 1
    )
    FROM lanes
    WHERE lanes.party IS NOT NULL
),
rooms AS MATERIALIZED (
    SELECT parties.party, {share} - (
        SELECT count(*) FROM runs WHERE worker IS NOT NULL AND creator = parties.party
    ) AS room
    FROM (SELECT DISTINCT party FROM lanes WHERE party IS NOT NULL) AS parties
),
engine_rooms AS MATERIALIZED (
    SELECT parties.party, parties.engine, {engine_share} - (
        SELECT count(*) FROM runs WHERE worker IS NOT NULL AND creator = parties.party AND engine = parties.engine
    ) AS room
    FROM (SELECT DISTINCT party, engine FROM lanes WHERE party IS NOT NULL) AS parties
),
heads AS MATERIALIZED (
    SELECT head.id, head.priority, lanes.party,
        row_number() OVER (PARTITION BY lanes.party, head.priority ORDER BY head.id) AS round
    FROM lanes
        JOIN rooms ON rooms.party = lanes.party
        JOIN engine_rooms ON engine_rooms.party = lanes.party AND engine_rooms.engine = lanes.engine
        CROSS JOIN LATERAL (
            SELECT jobs.id, jobs.priority FROM procrastinate_jobs AS jobs
            WHERE {is_waiting} AND {lane} = lanes.lane AND {party} = lanes.party
            ORDER BY jobs.priority DESC, jobs.id
            LIMIT 16
        ) AS head
    WHERE (rooms.room IS NULL OR rooms.room > 0) AND (engine_rooms.room IS NULL OR engine_rooms.room > 0)
),
candidates AS MATERIALIZED (
    SELECT heads.id, heads.party, heads.priority,
        row_number() OVER (ORDER BY heads.priority DESC, heads.round, service.served NULLS FIRST, heads.id) AS place
    FROM heads
        LEFT JOIN queue_service AS service ON service.party = heads.party AND service.priority = heads.priority
    ORDER BY place
    LIMIT 16
),
picked AS (
    SELECT jobs.id, candidates.party, candidates.priority
    FROM candidates JOIN procrastinate_jobs AS jobs ON jobs.id = candidates.id
    WHERE {is_waiting}
    ORDER BY candidates.place
    LIMIT 1
    FOR UPDATE OF jobs SKIP LOCKED
),
served AS (
    INSERT INTO queue_service (party, priority, served)
    SELECT party, priority, nextval('queue_service_numbers') FROM picked
    ON CONFLICT (party, priority) DO UPDATE SET served = excluded.served
)
UPDATE procrastinate_jobs AS jobs SET status = 'doing', worker_id = :fetcher
FROM picked
WHERE jobs.id = picked.id
RETURNING jobs.id, jobs.args ->> 'run', (jobs.args ->> 'epoch')::bigint

-- name: remove_job_of_run
DELETE FROM procrastinate_jobs WHERE args ->> 'run' = :id AND (status = 'todo' OR :claimed)

-- name: hand_over
UPDATE procrastinate_jobs SET queue_name = :lane
WHERE args ->> 'run' = :id AND (args ->> 'epoch')::bigint = :epoch AND status = 'todo'
RETURNING id

-- name: forget_jobs
DELETE FROM procrastinate_jobs WHERE args ->> 'run' = :id

-- name: remove_job
DELETE FROM procrastinate_jobs WHERE id = :job RETURNING args ->> 'run', (args ->> 'epoch')::bigint

-- name: still_queued
SELECT doc FROM runs WHERE id = :id AND epoch = :epoch AND state = 'queued' AND deadline_at IS NULL FOR SHARE

-- name: fetched_by
SELECT id, args ->> 'run' FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = :fetcher

-- name: needs_repair
SELECT EXISTS (SELECT 1 FROM procrastinate_jobs AS jobs WHERE {is_stalled})
    OR EXISTS (SELECT 1 FROM runs WHERE {has_no_job})
    OR EXISTS (SELECT 1 FROM procrastinate_workers AS workers WHERE {is_old})

-- name: remove_stalled
DELETE FROM procrastinate_jobs AS jobs WHERE {is_stalled}

-- name: without_job
SELECT runs.doc FROM runs WHERE {has_no_job}
ORDER BY runs.number
LIMIT :limit

-- name: forget_workers
DELETE FROM procrastinate_workers AS workers WHERE {is_old}
