-- name: queued
WITH RECURSIVE lanes (owner, engine) AS (
    SELECT owners.value, (SELECT min(engine) FROM queue WHERE owner = owners.value)
    FROM jsonb_array_elements_text(:owners::jsonb) AS owners
    UNION ALL
    SELECT owner, (SELECT min(engine) FROM queue WHERE queue.owner = lanes.owner AND queue.engine > lanes.engine)
    FROM lanes
    WHERE engine IS NOT NULL
)
SELECT runs.doc
FROM lanes
    CROSS JOIN LATERAL (
        SELECT queue.position, queue.run FROM queue
        WHERE queue.owner = lanes.owner AND queue.engine = lanes.engine
        ORDER BY queue.position
        LIMIT :limit
    ) AS head
    JOIN runs ON runs.number = head.run
WHERE lanes.engine IS NOT NULL
    AND lanes.engine NOT IN (SELECT value FROM jsonb_array_elements_text(:without_engines::jsonb))
ORDER BY head.position
LIMIT :limit

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
