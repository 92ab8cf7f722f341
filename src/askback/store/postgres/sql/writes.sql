-- name: insert_run
INSERT INTO runs
    (id, version, epoch, state, ended, skill, engine, owner, creator, worker, created_at, asked_at, deadline_at,
     expiring, last_seq, workdir, searched, doc)
VALUES
    (:id, :version, :epoch, :state, :ended, :skill, :engine, :owner, :creator, :worker, :created_at, :asked_at,
     :deadline_at, :expiring, :added, :workdir, :searched, :doc)
ON CONFLICT (id) DO NOTHING
RETURNING number, last_seq

-- name: end_run
UPDATE runs
SET version = :version, epoch = :epoch, state = :state, ended = :ended, owner = :owner, worker = :worker,
    asked_at = :asked_at, deadline_at = :deadline_at, expiring = :expiring, last_seq = last_seq + :added,
    searched = :searched, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: update_run
UPDATE runs
SET version = :version, epoch = :epoch, state = :state, owner = :owner, worker = :worker, asked_at = :asked_at,
    deadline_at = :deadline_at, expiring = :expiring, last_seq = last_seq + :added, searched = :searched, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: update_doc
UPDATE runs
SET version = :version, last_seq = last_seq + :added, searched = :searched, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: perhaps_secret
SELECT number, doc
FROM interactions
WHERE run = ? AND (parsed(doc) ->> 'kind' = 'secret' OR parsed(doc) ->> 'response_schema' IS NOT NULL)
