-- name: delivery_columns
deliveries.number, deliveries.webhook, webhooks.url, webhooks.secret, webhooks.kind, webhooks.states,
    webhooks.remind_after, webhooks.expiring, webhooks.run IS NOT NULL, deliveries.reason, deliveries.place,
    runs.id, deliveries.seq, deliveries.old, deliveries.new, deliveries.at, deliveries.attempts,
    deliveries.last_status, deliveries.last_error, deliveries.next_attempt_at, deliveries.delivered_at

-- The row of `runs` has all labels of `:labels`: pairs of name and value, as JSON.
-- name: has_labels
NOT EXISTS (
    SELECT 1 FROM json_each(:labels)
    WHERE NOT EXISTS (
        SELECT 1 FROM run_labels
        WHERE run_labels.name = json_each.value ->> 0 AND run_labels.value = json_each.value ->> 1
            AND run_labels.run = runs.number
    )
)

-- The run `:run` has all labels of the row of `webhooks`: an object, as JSON.
-- name: has_labels_of_webhook
NOT EXISTS (
    SELECT 1 FROM json_each(labels)
    WHERE NOT EXISTS (
        SELECT 1 FROM run_labels
        WHERE run_labels.name = json_each.key AND run_labels.value = json_each.value AND run_labels.run = :run
    )
)

-- The labels of a row of `turn_usage`, as `key` and `value`.
-- name: usage_labels
json_each(turn_usage.labels)

-- name: usage_has_labels
NOT EXISTS (
    SELECT 1 FROM json_each(:labels) AS wanted
    WHERE NOT EXISTS (
        SELECT 1 FROM json_each(turn_usage.labels) AS had
        WHERE had.key = wanted.value ->> 0 AND had.value = wanted.value ->> 1
    )
)

-- The question of the row of `runs` contains all words of `:words`, a list as JSON.
-- name: mentions_words
mentions(runs.doc, :words)

-- name: cancel_requested_at
json_extract(runs.doc, '$.cancel_requested_at')

-- name: summary
json_extract(runs.doc, '$.summary')

-- name: labels
json_extract(runs.doc, '$.labels')

-- name: kept
json_extract(runs.doc, '$.kept')

-- name: is_sticky
json_extract(runs.doc, '$.profile.kind') = 'sticky_process'

-- The times of a webhook, as `key` from 0 on, and `value`.
-- name: reminder_times
json_each(webhooks.remind_after)

-- The receiver of `due` is not one of `BusyReceivers`.
-- name: is_free
(
    SELECT CASE
        WHEN webhooks.run IS NULL AND webhooks.kind <> 'push'
        THEN webhooks.host NOT IN (SELECT value FROM json_each(:hosts))
        ELSE NOT :all_callers
            AND webhooks.host NOT IN (SELECT value FROM json_each(:hosts_of_callers))
            AND webhooks.url NOT IN (SELECT value FROM json_each(:devices))
            AND (webhooks.run IS NULL OR coalesce(runs.creator, '') NOT IN (SELECT value FROM json_each(:callers)))
        END
    FROM webhooks JOIN runs ON runs.number = due.run
    WHERE webhooks.number = due.webhook
)

-- The `DeliveryView` has it.
-- name: shown
(
    SELECT webhooks.run IS NOT NULL
        OR :of_server AND (
            webhooks.kind <> 'push' OR :all_devices OR webhooks.url IN (SELECT value FROM json_each(:devices))
        )
    FROM webhooks WHERE webhooks.number = deliveries.webhook
)

-- How many slots the row of `parties` may have; NULL: no limit. `:named` has those of single tokens, as JSON.
-- name: share
CASE
    WHEN parties.party = '' THEN NULL
    WHEN EXISTS (SELECT 1 FROM json_each(:named) AS named WHERE named.key = parties.party)
    THEN (SELECT named.value FROM json_each(:named) AS named WHERE named.key = parties.party)
    ELSE :usual
END

-- The same for the row's engine. `:of_any_engine` has the tokens without such a limit.
-- name: engine_share
CASE
    WHEN parties.party = '' OR parties.party IN (SELECT value FROM json_each(:of_any_engine)) THEN NULL
    ELSE (SELECT limited.value FROM json_each(:engines) AS limited WHERE limited.key = parties.engine)
END
