-- name: get
SELECT doc FROM runs WHERE id = ?

-- name: number
SELECT number FROM runs WHERE id = ?

-- name: request
SELECT requests.input, requests.parameter
FROM runs JOIN requests ON requests.run = runs.number
WHERE runs.id = ?

-- name: result
SELECT results.data
FROM runs LEFT JOIN results ON results.run = runs.number
WHERE runs.id = ?

-- name: list_runs
SELECT number, doc
FROM runs
WHERE number < :before {filters}
ORDER BY number DESC
LIMIT :limit

-- name: events
SELECT seq, type, at, data
FROM events
WHERE run = ? AND seq > ?
ORDER BY seq
LIMIT ?

-- name: interactions
SELECT doc
FROM interactions
WHERE run = ?
ORDER BY number

-- name: pending
SELECT asked_at, number, doc
FROM runs INDEXED BY runs_waiting
WHERE state = 'waiting_user' AND (asked_at, number) > (:asked_at, :number)
ORDER BY asked_at, number
LIMIT :limit

-- name: inbox_count
SELECT count(*), max(asked_at) FROM runs INDEXED BY runs_waiting WHERE state = 'waiting_user'

-- Each owner's queue has one lane per engine. Only the head of each lane is read, never the whole queue.
-- name: queued
WITH RECURSIVE lanes (owner, engine) AS (
    SELECT owners.value, (SELECT min(engine) FROM queue WHERE owner = owners.value)
    FROM json_each(:owners) AS owners
    UNION ALL
    SELECT owner, (SELECT min(engine) FROM queue WHERE queue.owner = lanes.owner AND engine > lanes.engine)
    FROM lanes
    WHERE engine IS NOT NULL
)
SELECT runs.doc
FROM lanes CROSS JOIN queue CROSS JOIN runs
WHERE lanes.engine IS NOT NULL
    AND lanes.engine NOT IN (SELECT value FROM json_each(:without_engines))
    AND queue.position IN (
        SELECT position FROM queue AS lane
        WHERE lane.owner = lanes.owner AND lane.engine = lanes.engine
        ORDER BY position LIMIT :limit
    )
    AND runs.number = queue.run
ORDER BY queue.position
LIMIT :limit

-- name: held
SELECT doc FROM runs INDEXED BY runs_held WHERE worker IS NOT NULL ORDER BY number

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
WHERE state IN ('queued', 'running', 'waiting_user') AND owner = ?
ORDER BY number

-- name: count_runs
SELECT count(*) FROM runs
