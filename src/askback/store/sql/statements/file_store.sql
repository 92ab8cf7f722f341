-- name: read
SELECT id, confirmed FROM file_store WHERE single = 1

-- name: propose
INSERT INTO file_store (single, id, confirmed) VALUES (1, :id, 0) ON CONFLICT DO NOTHING

-- name: confirm
UPDATE file_store SET confirmed = 1 WHERE single = 1 AND id = :id

-- name: forget
DELETE FROM file_store WHERE single = 1

-- name: put
INSERT INTO file_store (single, id, confirmed) VALUES (1, :id, 1)

-- A sticky run that waits needs its process, not its files.
-- name: count_kept
SELECT
    count({kept}),
    coalesce(sum(CASE WHEN {kept} IS NULL AND epoch > 0 AND NOT (state = 'waiting_user' AND {is_sticky}) THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN {kept} IS NULL AND epoch = 0 THEN 1 ELSE 0 END), 0)
FROM runs
WHERE state IN ('queued', 'waiting_user')

-- name: some_kept
SELECT {kept} FROM runs WHERE state IN ('queued', 'waiting_user') AND {kept} IS NOT NULL LIMIT :limit
