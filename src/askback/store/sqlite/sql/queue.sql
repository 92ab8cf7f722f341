-- name: enqueue
INSERT INTO queue (run, owner, engine, priority) VALUES (:run, :owner, :engine, :priority)

-- name: dequeue
DELETE FROM queue WHERE run = :run

-- name: hand_over
UPDATE queue SET owner = :owner WHERE run = :run
