-- name: insert_webhook
INSERT INTO webhooks (run, url, host, secret, kind, states, labels, remind_after, expiring)
VALUES (:run, :url, :host, :secret, :kind, :states, :labels, :remind_after, :expiring)

-- name: server_webhooks
SELECT number, url, kind, labels, remind_after FROM webhooks WHERE run IS NULL

-- name: update_webhook
UPDATE webhooks
SET secret = :secret, states = :states, remind_after = :remind_after, expiring = :expiring, active = true
WHERE number = :number

-- name: retire_webhook
UPDATE webhooks SET active = false, secret = NULL, remind_after = NULL, expiring = false WHERE number = :number

-- name: retire_deliveries
UPDATE deliveries
SET next_attempt_at = NULL, doc = NULL, last_error = 'this webhook is no longer in the settings'
WHERE webhook = :number AND next_attempt_at IS NOT NULL

-- name: insert_deliveries
INSERT INTO deliveries (webhook, run, seq, reason, old, new, at, doc, next_attempt_at)
SELECT number, :run, :seq, :reason, :old, :new, :at, :doc, :at
FROM webhooks
WHERE (run = :run OR (:shared AND run IS NULL)) AND (:reason = 'state' OR kind = 'standard')
    AND active AND (states IS NULL OR states LIKE '%,' || :new || ',%')
    AND (labels IS NULL OR {has_labels_of_webhook})

-- A webhook is reminded of a question that it was notified of.

-- name: insert_reminders
INSERT INTO deliveries (webhook, run, seq, place, reason, old, new, at, next_attempt_at)
SELECT asked.webhook, asked.run, asked.seq, times.key + 1, 'reminder', asked.new, asked.new,
    asked.at + times.value, asked.at + times.value
FROM deliveries AS asked
    JOIN webhooks ON webhooks.number = asked.webhook
    CROSS JOIN {reminder_times} AS times
WHERE asked.run = :run AND asked.seq = :seq AND asked.place = 0
    AND (:deadline_at IS NULL OR asked.at + times.value < :deadline_at)

-- name: insert_expiring
INSERT INTO deliveries (webhook, run, seq, reason, old, new, at, doc, next_attempt_at)
SELECT asked.webhook, asked.run, :seq, 'expiring', asked.new, asked.new, :at, :doc, :at
FROM deliveries AS asked JOIN webhooks ON webhooks.number = asked.webhook
WHERE asked.run = :run AND asked.at = :asked_at AND asked.new = 'waiting_user' AND asked.reason = 'state'
    AND webhooks.active AND webhooks.expiring

-- name: forget_reminders
DELETE FROM deliveries
WHERE run = :run AND reason <> 'state' AND next_attempt_at IS NOT NULL AND attempts = 0

-- name: stop_reminders
UPDATE deliveries
SET next_attempt_at = NULL, doc = NULL, last_error = 'the question is closed'
WHERE run = :run AND reason <> 'state' AND next_attempt_at IS NOT NULL

-- A webhook of the server whose reminders have changed.

-- name: forget_planned
DELETE FROM deliveries
WHERE webhook = :webhook AND reason = 'reminder' AND next_attempt_at IS NOT NULL AND attempts = 0

-- name: stop_planned
UPDATE deliveries
SET next_attempt_at = NULL, doc = NULL, last_error = 'the reminders of this webhook have changed'
WHERE webhook = :webhook AND reason = 'reminder' AND next_attempt_at IS NOT NULL

-- name: plan_again
INSERT INTO deliveries (webhook, run, seq, place, reason, old, new, at, next_attempt_at)
SELECT asked.webhook, asked.run, asked.seq, times.key + 1, 'reminder', asked.new, asked.new,
    asked.at + times.value, asked.at + times.value
FROM runs INDEXED BY runs_waiting
    JOIN deliveries AS asked ON asked.webhook = :webhook AND asked.run = runs.number AND asked.at = runs.asked_at
    JOIN webhooks ON webhooks.number = asked.webhook
    CROSS JOIN {reminder_times} AS times
WHERE runs.state = 'waiting_user' AND runs.asked_at IS NOT NULL
    AND {cancel_requested_at} IS NULL
    AND asked.reason = 'state' AND asked.new = 'waiting_user'
    AND asked.at + times.value > :at
    AND (runs.deadline_at IS NULL OR asked.at + times.value < runs.deadline_at)
ON CONFLICT (webhook, run, seq, place) DO NOTHING

-- name: next_delivery
SELECT next_attempt_at FROM deliveries AS due INDEXED BY deliveries_due
WHERE next_attempt_at IS NOT NULL AND {is_free}
ORDER BY next_attempt_at
LIMIT 1

-- name: claim_deliveries
UPDATE deliveries
SET attempts = attempts + 1, next_attempt_at = :until,
    doc = coalesce(doc, (SELECT runs.doc FROM runs WHERE runs.number = deliveries.run))
WHERE number IN (
    SELECT number FROM deliveries AS due INDEXED BY deliveries_due
    WHERE due.next_attempt_at <= :at AND {is_free}
    ORDER BY due.next_attempt_at, due.number
    LIMIT :limit
)
RETURNING number

-- name: drop_outdated
UPDATE deliveries AS claimed
SET attempts = attempts - 1, next_attempt_at = NULL, doc = NULL, last_error = 'a later reminder has taken its place'
WHERE number = :number AND place > 0 AND EXISTS (
    SELECT 1 FROM deliveries AS later
    WHERE later.webhook = claimed.webhook AND later.run = claimed.run AND later.seq = claimed.seq
        AND later.place > claimed.place AND (later.attempts > 0 OR later.next_attempt_at <= :at)
)
RETURNING number

-- name: is_due
SELECT 1 FROM deliveries WHERE number = :number AND attempts = :attempts AND next_attempt_at IS NOT NULL

-- name: claimed_delivery
SELECT {delivery_columns}, deliveries.doc
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number = :number

-- name: record_attempt
UPDATE deliveries
SET last_status = :status,
    last_error = CASE WHEN next_attempt_at IS NULL AND :delivered_at IS NULL THEN last_error ELSE :error END,
    next_attempt_at = CASE WHEN next_attempt_at IS NOT NULL THEN CAST(:next_attempt_at AS BIGINT) END,
    delivered_at = :delivered_at,
    doc = CASE WHEN next_attempt_at IS NOT NULL AND :next_attempt_at IS NOT NULL THEN doc END
WHERE number = :number AND attempts = :attempts AND delivered_at IS NULL

-- name: deliveries
SELECT {delivery_columns}
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number < :before AND {shown}
ORDER BY deliveries.number DESC
LIMIT :limit

-- name: deliveries_labelled
SELECT {delivery_columns}
FROM (
    SELECT deliveries.number AS number
    FROM run_labels AS wanted CROSS JOIN runs CROSS JOIN deliveries
    WHERE wanted.name = :label_name AND wanted.value = :label_value AND runs.number = wanted.run
        AND deliveries.run = wanted.run AND deliveries.number < :before AND {has_labels} AND {shown}
    ORDER BY deliveries.number DESC
    LIMIT :limit
) AS found CROSS JOIN deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number = found.number
ORDER BY deliveries.number DESC

-- name: deliveries_of_run
SELECT {delivery_columns}
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.run = :run AND deliveries.number < :before AND {shown}
ORDER BY deliveries.number DESC
LIMIT :limit
