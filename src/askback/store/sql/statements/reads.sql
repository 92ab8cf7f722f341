-- name: get
SELECT doc FROM runs WHERE id = :id

-- name: number
SELECT number FROM runs WHERE id = :id

-- name: existing
SELECT id FROM runs WHERE id IN (SELECT value FROM json_each(:ids))

-- name: check_labels
SELECT 1 FROM runs WHERE id = :id AND {has_labels}

-- name: request
SELECT requests.input, requests.parameter, requests.env
FROM runs JOIN requests ON requests.run = runs.number
WHERE runs.id = :id

-- name: result
SELECT results.data
FROM runs LEFT JOIN results ON results.run = runs.number
WHERE runs.id = :id

-- name: list_runs
SELECT number, doc
FROM runs
WHERE number < :before {filters}
ORDER BY number DESC
LIMIT :limit

-- name: list_labelled_by_state
SELECT number, doc
FROM runs
WHERE number < :before {filters} AND {has_labels}
ORDER BY number DESC
LIMIT :limit

-- Driven by one of the labels, newest first; `{wanted}` and `{filters}` narrow it down.
-- name: list_labelled
SELECT runs.number, runs.doc
FROM run_labels AS wanted CROSS JOIN runs
WHERE wanted.name = :label_name AND wanted.value = :label_value AND wanted.run < :before {wanted}
    AND runs.number = wanted.run {filters} AND {has_labels}
ORDER BY wanted.run DESC
LIMIT :limit

-- name: events
SELECT seq, type, at, data
FROM events
WHERE run = ? AND seq > ?
ORDER BY seq
LIMIT ?

-- Of the last 1,000 events, the messages of the engine and the starts of turns, newest first.
-- name: last_messages
SELECT seq, type, at, data
FROM events
WHERE run = :run AND seq > (SELECT max(seq) FROM events WHERE run = :run) - 1000
    AND type IN ('assistant.message', 'turn.started')
ORDER BY seq DESC
LIMIT :limit

-- name: interactions
SELECT doc
FROM interactions
WHERE run = ?
ORDER BY number

-- A run whose question is closed waits a moment longer, without `asked_at`, until its process has ended.
-- name: pending
SELECT asked_at, number, doc
FROM runs INDEXED BY runs_waiting
WHERE state = 'waiting_user' AND (asked_at, number) > (:asked_at, :number)
    AND (:skill IS NULL OR skill = :skill)
    AND (:engine IS NULL OR engine = :engine)
    AND (:words IS NULL OR {mentions_words})
    AND (:labels IS NULL OR {has_labels})
ORDER BY asked_at, number
LIMIT :limit

-- The index is used for the comparison of `due` alone; SQLite does not use it for a row that starts with an expression.
-- name: pending_by_deadline
SELECT coalesce(deadline_at, 9223372036854775807) AS due, asked_at, number, doc
FROM runs INDEXED BY runs_waiting_by_deadline
WHERE state = 'waiting_user' AND asked_at IS NOT NULL
    AND coalesce(deadline_at, 9223372036854775807) >= :due
    AND (coalesce(deadline_at, 9223372036854775807), asked_at, number) > (:due, :asked_at, :number)
    AND (:skill IS NULL OR skill = :skill)
    AND (:engine IS NULL OR engine = :engine)
    AND (:words IS NULL OR {mentions_words})
    AND (:labels IS NULL OR {has_labels})
ORDER BY coalesce(deadline_at, 9223372036854775807), asked_at, number
LIMIT :limit

-- name: inbox_count
SELECT skill, engine, count(*), max(asked_at)
FROM runs INDEXED BY runs_waiting
WHERE state = 'waiting_user' AND asked_at IS NOT NULL AND (:words IS NULL OR {mentions_words})
    AND (:labels IS NULL OR {has_labels})
GROUP BY skill, engine

-- name: closed_questions
SELECT interactions.answered_at, interactions.number, runs.id, runs.skill, runs.engine, runs.state,
    {summary}, {labels}, interactions.doc
FROM interactions INDEXED BY interactions_closed CROSS JOIN runs
WHERE runs.number = interactions.run
    AND (interactions.answered_at, interactions.number) < (:answered_at, :number)
    AND interactions.answered_at IS NOT NULL
ORDER BY interactions.answered_at DESC, interactions.number DESC
LIMIT :limit

-- Costs as much as the label has closed questions; only the wanted ones are read whole.
-- name: closed_labelled
SELECT interactions.answered_at, interactions.number, runs.id, runs.skill, runs.engine, runs.state,
    {summary}, {labels}, interactions.doc
FROM (
    SELECT interactions.number AS number
    FROM run_labels AS wanted CROSS JOIN runs CROSS JOIN interactions
    WHERE wanted.name = :label_name AND wanted.value = :label_value AND runs.number = wanted.run
        AND interactions.run = wanted.run AND {has_labels}
        AND (interactions.answered_at, interactions.number) < (:answered_at, :number)
        AND interactions.answered_at IS NOT NULL
    ORDER BY interactions.answered_at DESC, interactions.number DESC
    LIMIT :limit
) AS found CROSS JOIN interactions CROSS JOIN runs
WHERE interactions.number = found.number AND runs.number = interactions.run
ORDER BY interactions.answered_at DESC, interactions.number DESC

-- Each owner's queue has one lane per engine and party. Only the head of each lane is read, never the whole queue.
-- `room`: how many further slots a party may have. What exceeds it comes last.
-- name: queued
WITH RECURSIVE lanes (owner, engine, party) AS (
    SELECT queue.owner, queue.engine, queue.party
    FROM json_each(:owners) AS owners CROSS JOIN queue
    WHERE queue.position = (
        SELECT position FROM queue AS first
        WHERE first.owner = owners.value
        ORDER BY first.engine, first.party LIMIT 1
    )
    UNION ALL
    SELECT queue.owner, queue.engine, queue.party
    FROM lanes CROSS JOIN queue
    WHERE queue.position = coalesce(
        (
            SELECT position FROM queue AS next
            WHERE next.owner = lanes.owner AND next.engine = lanes.engine AND next.party > lanes.party
            ORDER BY next.party LIMIT 1
        ),
        (
            SELECT position FROM queue AS next
            WHERE next.owner = lanes.owner AND next.engine > lanes.engine
            ORDER BY next.engine, next.party LIMIT 1
        )
    )
),
rooms AS MATERIALIZED (
    SELECT party, {share} - (
        SELECT count(*) FROM runs INDEXED BY runs_held_by_creator WHERE worker IS NOT NULL AND creator = parties.party
    ) AS room
    FROM (SELECT DISTINCT party FROM lanes) AS parties
),
engine_rooms AS MATERIALIZED (
    SELECT party, engine, {engine_share} - (
        SELECT count(*) FROM runs INDEXED BY runs_held_by_creator
        WHERE worker IS NOT NULL AND creator = parties.party AND engine = parties.engine
    ) AS room
    FROM (SELECT DISTINCT party, engine FROM lanes) AS parties
),
waiting AS (
    SELECT queue.position, queue.run, queue.priority, queue.party, queue.engine,
        row_number() OVER (PARTITION BY queue.party, queue.engine ORDER BY queue.priority DESC, queue.position) AS place,
        row_number() OVER (PARTITION BY queue.party, queue.priority ORDER BY queue.position) AS round
    FROM lanes CROSS JOIN queue
    WHERE lanes.engine NOT IN (SELECT value FROM json_each(:without_engines))
        AND queue.position IN (
            SELECT position FROM queue AS lane
            WHERE lane.owner = lanes.owner AND lane.engine = lanes.engine AND lane.party = lanes.party
            ORDER BY priority DESC, position LIMIT :limit
        )
),
fitting AS (
    SELECT waiting.*, engine_rooms.room IS NULL OR waiting.place <= engine_rooms.room AS fits
    FROM waiting CROSS JOIN engine_rooms ON engine_rooms.party = waiting.party AND engine_rooms.engine = waiting.engine
),
heads AS (
    SELECT run, priority, party, round, position, fits,
        row_number() OVER (PARTITION BY party, fits ORDER BY priority DESC, position) AS place
    FROM fitting
),
found AS (
    SELECT heads.run, heads.fits AND (rooms.room IS NULL OR heads.place <= rooms.room) AS allowed,
        heads.priority, heads.round, coalesce(queue_service.served, 0) AS served, heads.position
    FROM heads
        CROSS JOIN rooms ON rooms.party = heads.party
        LEFT JOIN queue_service ON queue_service.party = heads.party AND queue_service.priority = heads.priority
    ORDER BY allowed DESC, heads.priority DESC, round, served, position
    LIMIT :limit
)
SELECT found.allowed, runs.doc
FROM found CROSS JOIN runs
WHERE runs.number = found.run
ORDER BY allowed DESC, priority DESC, round, served, position

-- name: longest_queued
SELECT runs.doc
FROM json_each(:owners) AS owners CROSS JOIN queue CROSS JOIN runs
WHERE queue.position = (SELECT min(position) FROM queue AS oldest INDEXED BY queue_by_age WHERE oldest.owner = owners.value)
    AND runs.number = queue.run
ORDER BY queue.position
LIMIT 1

-- name: held
SELECT doc FROM runs INDEXED BY runs_held WHERE worker IS NOT NULL ORDER BY number

-- name: held_by
SELECT doc FROM runs
WHERE worker IS NOT NULL AND worker IN (SELECT value FROM json_each(:workers))
ORDER BY number

-- name: workers
SELECT DISTINCT worker FROM runs INDEXED BY runs_held WHERE worker IS NOT NULL

-- name: held_by_token
SELECT creator, engine, count(*) FROM runs INDEXED BY runs_held_by_creator
WHERE worker IS NOT NULL AND creator IS NOT NULL
GROUP BY creator, engine

-- name: overdue
SELECT runs.doc
FROM json_each(:owners) AS owners CROSS JOIN runs
WHERE runs.number IN (
    SELECT number FROM runs AS due
    WHERE due.owner = owners.value AND due.deadline_at IS NOT NULL AND due.deadline_at <= :at
    ORDER BY due.deadline_at LIMIT :limit
)
ORDER BY runs.deadline_at, runs.number
LIMIT :limit

-- name: next_deadline
SELECT min((SELECT min(deadline_at) FROM runs WHERE owner = owners.value AND deadline_at IS NOT NULL))
FROM json_each(:owners) AS owners

-- Runs that are parked for a limit of this engine which is not over at `:at`, those that are parked the longest first.
-- name: parked
SELECT doc FROM runs INDEXED BY runs_parked
WHERE state = 'queued' AND deadline_at > :at AND engine = :engine
ORDER BY deadline_at DESC
LIMIT 20

-- name: expiring
SELECT runs.doc
FROM json_each(:owners) AS owners CROSS JOIN runs
WHERE runs.number IN (
    SELECT number FROM runs AS near INDEXED BY runs_unannounced
    WHERE near.owner = owners.value AND near.deadline_at > :at AND near.deadline_at <= :at + :before
        AND near.deadline_at IS NOT NULL AND NOT near.expiring AND near.deadline_at - near.asked_at > :before
    ORDER BY near.deadline_at LIMIT :limit
)
ORDER BY runs.deadline_at, runs.number
LIMIT :limit

-- name: next_expiring
SELECT min((
    SELECT near.deadline_at FROM runs AS near INDEXED BY runs_unannounced
    WHERE near.owner = owners.value AND near.deadline_at > :at
        AND near.deadline_at IS NOT NULL AND NOT near.expiring AND near.deadline_at - near.asked_at > :before
    ORDER BY near.deadline_at LIMIT 1
))
FROM json_each(:owners) AS owners

-- name: owners
WITH RECURSIVE found (owner) AS (
    SELECT min(owner) FROM runs INDEXED BY runs_open WHERE state IN ('queued', 'running', 'waiting_user')
    UNION ALL
    SELECT (
        SELECT min(owner) FROM runs INDEXED BY runs_open
        WHERE state IN ('queued', 'running', 'waiting_user') AND runs.owner > found.owner
    )
    FROM found
    WHERE owner IS NOT NULL
)
SELECT owner FROM found WHERE owner IS NOT NULL

-- name: owned_by
SELECT doc FROM runs INDEXED BY runs_open
WHERE state IN ('queued', 'running', 'waiting_user') AND owner = :owner
ORDER BY number

-- name: count_all_runs
SELECT count(*) FROM runs
