-- Both go through all open questions, and are used a few times a day.

-- name: count_open_questions
SELECT count(*)
FROM runs INDEXED BY runs_waiting
WHERE state = 'waiting_user' AND asked_at IS NOT NULL AND owner = :owner
    AND (deadline_at IS NULL OR deadline_at > :at)
    AND {cancel_requested_at} IS NULL
    AND (:labels IS NULL OR {has_labels})

-- name: oldest_open_questions
SELECT doc
FROM runs INDEXED BY runs_waiting
WHERE state = 'waiting_user' AND asked_at IS NOT NULL AND owner = :owner
    AND (deadline_at IS NULL OR deadline_at > :at)
    AND {cancel_requested_at} IS NULL
    AND (:labels IS NULL OR {has_labels})
ORDER BY asked_at, number
LIMIT :limit

-- name: active_webhooks
SELECT number, url, kind FROM webhooks WHERE run IS NULL AND active
