-- name: file_store
SELECT id, confirmed FROM file_store WHERE single = 1

-- name: propose_file_store
INSERT INTO file_store (single, id, confirmed) VALUES (1, :id, 0) ON CONFLICT DO NOTHING

-- name: confirm_file_store
UPDATE file_store SET confirmed = 1 WHERE single = 1 AND id = :id

-- name: forget_file_store
DELETE FROM file_store WHERE single = 1

-- name: put_file_store
INSERT INTO file_store (single, id, confirmed) VALUES (1, :id, 1)

-- A sticky run that waits needs its process, not its files.
-- name: count_stored_runs
SELECT kind, count(*)
FROM (
    SELECT CASE
        WHEN state = 'running' THEN CASE WHEN {kept} IS NULL THEN 'running' ELSE 'continued' END
        WHEN {kept} IS NOT NULL THEN 'stored'
        WHEN epoch = 0 THEN 'not_started'
        WHEN state = 'waiting_user' AND {is_sticky} THEN 'sticky'
        ELSE 'not_stored'
        END AS kind
    FROM runs
    WHERE state IN ('queued', 'running', 'waiting_user')
) AS found
GROUP BY kind

-- name: some_archive_keys
SELECT {kept} FROM runs WHERE state IN ('queued', 'waiting_user') AND {kept} IS NOT NULL LIMIT :limit
