-- name: find_key
SELECT keys.body_digest, runs.doc
FROM idempotency_keys AS keys JOIN runs ON runs.number = keys.run
WHERE keys.key = :key

-- name: count_open
SELECT count(*) FROM runs WHERE creator = :creator AND state IN ('queued', 'running', 'waiting_user')

-- name: count_held
SELECT count(*), count(CASE WHEN engine = :engine THEN 1 END)
FROM runs INDEXED BY runs_held_by_creator WHERE worker IS NOT NULL AND creator = :creator

-- name: open_workdirs
SELECT id, workdir FROM runs INDEXED BY runs_open_in_workdirs
WHERE workdir IS NOT NULL AND state IN ('queued', 'running', 'waiting_user')

-- name: insert_key
INSERT INTO idempotency_keys (key, body_digest, run, created_at) VALUES (:key, :body_digest, :run, :created_at)

-- name: insert_run
INSERT INTO runs
    (id, version, epoch, state, ended, skill, engine, owner, creator, worker, created_at, asked_at, deadline_at,
     expiring, last_seq, workdir, doc)
VALUES
    (:id, :version, :epoch, :state, :ended, :skill, :engine, :owner, :creator, :worker, :created_at, :asked_at,
     :deadline_at, :expiring, :added, :workdir, :doc)
ON CONFLICT (id) DO NOTHING
RETURNING number, last_seq

-- name: end_run
UPDATE runs
SET version = :version, epoch = :epoch, state = :state, ended = :ended, owner = :owner, worker = :worker,
    asked_at = :asked_at, deadline_at = :deadline_at, expiring = :expiring, last_seq = last_seq + :added, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: update_run
UPDATE runs
SET version = :version, epoch = :epoch, state = :state, owner = :owner, worker = :worker, asked_at = :asked_at,
    deadline_at = :deadline_at, expiring = :expiring, last_seq = last_seq + :added, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: update_doc
UPDATE runs
SET version = :version, last_seq = last_seq + :added, doc = :doc
WHERE id = :id AND version = :before
RETURNING number, last_seq

-- name: add_to_running
UPDATE runs
SET last_seq = last_seq + :added
WHERE id = :id AND epoch = :epoch AND state = 'running'
RETURNING number, last_seq

-- name: insert_label
INSERT INTO run_labels (name, value, run, ended) VALUES (?, ?, ?, ?)

-- name: end_labels
UPDATE run_labels SET ended = ? WHERE run = ?

-- name: insert_event
INSERT INTO events (run, seq, type, at, data) VALUES (?, ?, ?, ?, ?)

-- name: insert_request
INSERT INTO requests (run, input, parameter, env) VALUES (?, ?, ?, ?)

-- name: insert_result
INSERT INTO results (run, data) VALUES (?, ?)

-- name: insert_interaction
INSERT INTO interactions (run, interaction_id, outcome, asked_at, answered_at, doc)
VALUES (:run, :interaction_id, :outcome, :asked_at, :answered_at, :doc)

-- name: close_interaction
UPDATE interactions
SET outcome = :outcome, answered_at = :answered_at, doc = :doc
WHERE run = :run AND interaction_id = :interaction_id AND outcome = 'pending'
RETURNING number

-- name: erase_env
UPDATE requests SET env = NULL WHERE run = ? AND env IS NOT NULL

-- name: perhaps_secret
SELECT number, doc
FROM interactions
WHERE run = ? AND (json_extract(doc, '$.kind') = 'secret' OR json_extract(doc, '$.response_schema') IS NOT NULL)

-- name: set_interaction
UPDATE interactions SET doc = :doc WHERE number = :number
