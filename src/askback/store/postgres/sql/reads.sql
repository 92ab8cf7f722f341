-- A job that a worker has fetched is as good as claimed. One that is outdated is still there: its epoch is not the run's.
-- Reads the whole queue: workers use `fetch` instead.
-- name: queued
WITH waiting AS (
    SELECT jobs.id, jobs.priority, coalesce(runs.creator, '') AS party, runs.engine, runs.doc,
        row_number() OVER (PARTITION BY runs.creator, runs.engine ORDER BY jobs.priority DESC, jobs.id) AS place,
        row_number() OVER (PARTITION BY runs.creator, jobs.priority ORDER BY jobs.id) AS round
    FROM procrastinate_jobs AS jobs
        JOIN runs ON runs.id = jobs.args ->> 'run' AND runs.epoch = (jobs.args ->> 'epoch')::bigint AND runs.state = 'queued'
    WHERE jobs.status = 'todo'
        AND runs.owner IN (SELECT value FROM jsonb_array_elements_text(:owners::jsonb))
        AND runs.engine NOT IN (SELECT value FROM jsonb_array_elements_text(:without_engines::jsonb))
),
rooms AS MATERIALIZED (
    SELECT parties.party, {share} - (
        SELECT count(*) FROM runs WHERE worker IS NOT NULL AND creator = parties.party
    ) AS room
    FROM (SELECT DISTINCT party FROM waiting) AS parties
),
engine_rooms AS MATERIALIZED (
    SELECT parties.party, parties.engine, {engine_share} - (
        SELECT count(*) FROM runs WHERE worker IS NOT NULL AND creator = parties.party AND engine = parties.engine
    ) AS room
    FROM (SELECT DISTINCT party, engine FROM waiting) AS parties
),
fitting AS (
    SELECT waiting.*, engine_rooms.room IS NULL OR waiting.place <= engine_rooms.room AS fits
    FROM waiting JOIN engine_rooms ON engine_rooms.party = waiting.party AND engine_rooms.engine = waiting.engine
),
heads AS (
    SELECT id, priority, party, doc, round, fits,
        row_number() OVER (PARTITION BY party, fits ORDER BY priority DESC, id) AS place
    FROM fitting
)
SELECT heads.fits AND (rooms.room IS NULL OR heads.place <= rooms.room) AS allowed, heads.doc
FROM heads
    JOIN rooms ON rooms.party = heads.party
    LEFT JOIN queue_service AS service ON service.party = heads.party AND service.priority = heads.priority
ORDER BY allowed DESC, heads.priority DESC, heads.round, service.served NULLS FIRST, heads.id
LIMIT :limit

-- name: longest_queued
SELECT runs.doc
FROM procrastinate_jobs AS jobs
    JOIN runs ON runs.id = jobs.args ->> 'run' AND runs.epoch = (jobs.args ->> 'epoch')::bigint AND runs.state = 'queued'
WHERE jobs.status IN ('todo', 'doing')
    AND runs.owner IN (SELECT value FROM jsonb_array_elements_text(:owners::jsonb))
ORDER BY jobs.id
LIMIT 1

-- name: overdue
SELECT due.doc
FROM jsonb_array_elements_text(:owners::jsonb) AS owners
    CROSS JOIN LATERAL (
        SELECT number, deadline_at, doc FROM runs
        WHERE owner = owners.value AND deadline_at IS NOT NULL AND deadline_at <= :at
        ORDER BY deadline_at
        LIMIT :limit
    ) AS due
ORDER BY due.deadline_at, due.number
LIMIT :limit

-- name: expiring
SELECT near.doc
FROM jsonb_array_elements_text(:owners::jsonb) AS owners
    CROSS JOIN LATERAL (
        SELECT number, deadline_at, doc FROM runs
        WHERE owner = owners.value AND deadline_at > :at AND deadline_at <= :at + :before
            AND deadline_at IS NOT NULL AND NOT expiring AND deadline_at - asked_at > :before
        ORDER BY deadline_at
        LIMIT :limit
    ) AS near
ORDER BY near.deadline_at, near.number
LIMIT :limit
