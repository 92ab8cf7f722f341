-- name: finished_runs
SELECT number, doc FROM runs
WHERE number > :after AND ended IS NOT NULL
ORDER BY number
LIMIT :limit

-- name: number_of_finished
SELECT number FROM runs WHERE id = ? AND ended IS NOT NULL

-- name: forget_deliveries
DELETE FROM deliveries WHERE run = ?

-- name: forget_webhooks
DELETE FROM webhooks WHERE run = ?

-- name: forget_labels
DELETE FROM run_labels WHERE run = ?

-- name: forget_messages
DELETE FROM chat_messages WHERE run = ?

-- name: forget_keys
DELETE FROM idempotency_keys WHERE run = ?

-- name: forget_events
DELETE FROM events WHERE run = ?

-- What was used still counts.
-- name: forget_usage
UPDATE turn_usage SET run = NULL, labels = NULL WHERE run = ?

-- name: forget_interactions
DELETE FROM interactions WHERE run = ?

-- name: forget_request
DELETE FROM requests WHERE run = ?

-- name: forget_result
DELETE FROM results WHERE run = ?

-- name: forget_run
DELETE FROM runs WHERE number = ?
