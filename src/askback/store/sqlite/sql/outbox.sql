-- name: insert_webhook
INSERT INTO webhooks (run, url, host, secret, kind, states, labels)
VALUES (:run, :url, :host, :secret, :kind, :states, :labels)

-- name: server_webhooks
SELECT number, url, kind, labels FROM webhooks WHERE run IS NULL

-- name: update_webhook
UPDATE webhooks SET secret = :secret, states = :states, active = 1 WHERE number = :number

-- name: retire_webhook
UPDATE webhooks SET active = 0, secret = NULL WHERE number = :number

-- name: retire_deliveries
UPDATE deliveries
SET next_attempt_at = NULL, doc = NULL, last_error = 'this webhook is no longer in the settings'
WHERE webhook = :number AND next_attempt_at IS NOT NULL

-- name: insert_deliveries
INSERT INTO deliveries (webhook, run, seq, old, new, at, doc, next_attempt_at)
SELECT number, :run, :seq, :old, :new, :at, :doc, :at
FROM webhooks
WHERE (run = :run OR (:shared AND run IS NULL))
    AND active AND (states IS NULL OR instr(states, ',' || :new || ','))
    AND (labels IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(labels)
        WHERE NOT EXISTS (
            SELECT 1 FROM run_labels
            WHERE run_labels.name = json_each.key AND run_labels.value = json_each.value AND run_labels.run = :run
        )
    ))

-- name: next_delivery
SELECT next_attempt_at FROM deliveries INDEXED BY deliveries_due
WHERE next_attempt_at IS NOT NULL
    AND (SELECT host FROM webhooks WHERE number = webhook) NOT IN (SELECT value FROM json_each(:without_hosts))
ORDER BY next_attempt_at
LIMIT 1

-- name: claim
UPDATE deliveries
SET attempts = attempts + 1, next_attempt_at = :until
WHERE number IN (
    SELECT number FROM deliveries AS due INDEXED BY deliveries_due
    WHERE due.next_attempt_at <= :at
        AND (SELECT host FROM webhooks WHERE number = due.webhook) NOT IN (SELECT value FROM json_each(:without_hosts))
    ORDER BY due.next_attempt_at, due.number
    LIMIT :limit
)
RETURNING number

-- name: claimed
SELECT {columns}, deliveries.doc
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number = :number

-- name: note_attempt
UPDATE deliveries
SET last_status = :status, last_error = :error, next_attempt_at = :next_attempt_at, delivered_at = :delivered_at,
    doc = iif(:next_attempt_at IS NULL, NULL, doc)
WHERE number = :number AND attempts = :attempts AND next_attempt_at IS NOT NULL

-- name: deliveries
SELECT {columns}
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number < :before
ORDER BY deliveries.number DESC
LIMIT :limit

-- name: deliveries_labelled
SELECT {columns}
FROM (
    SELECT deliveries.number AS number
    FROM run_labels AS wanted CROSS JOIN runs CROSS JOIN deliveries
    WHERE wanted.name = :label_name AND wanted.value = :label_value AND runs.number = wanted.run
        AND deliveries.run = wanted.run AND deliveries.number < :before AND {has_labels}
    ORDER BY deliveries.number DESC
    LIMIT :limit
) AS found CROSS JOIN deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.number = found.number
ORDER BY deliveries.number DESC

-- name: deliveries_of_run
SELECT {columns}
FROM deliveries
    JOIN webhooks ON webhooks.number = deliveries.webhook
    JOIN runs ON runs.number = deliveries.run
WHERE deliveries.run = :run AND deliveries.number < :before
ORDER BY deliveries.number DESC
LIMIT :limit
