-- name: enqueue
INSERT INTO queue (run, owner, engine, priority, party) VALUES (:run, :owner, :engine, :priority, :party)

-- name: dequeue
DELETE FROM queue WHERE run = :run

-- name: serve
INSERT INTO queue_service (party, priority, served)
VALUES (:party, :priority, (SELECT coalesce(max(served), 0) + 1 FROM queue_service))
ON CONFLICT (party, priority) DO UPDATE SET served = excluded.served

-- name: hand_over
UPDATE queue SET owner = :owner WHERE run = :run
