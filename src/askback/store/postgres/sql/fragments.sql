-- name: has_labels
NOT EXISTS (
    SELECT 1 FROM jsonb_array_elements(:labels::jsonb) AS label
    WHERE NOT EXISTS (
        SELECT 1 FROM run_labels
        WHERE run_labels.name = label.value ->> 0 AND run_labels.value = label.value ->> 1
            AND run_labels.run = runs.number
    )
)

-- name: has_labels_of_webhook
NOT EXISTS (
    SELECT 1 FROM jsonb_each_text(webhooks.labels::jsonb) AS label
    WHERE NOT EXISTS (
        SELECT 1 FROM run_labels
        WHERE run_labels.name = label.key AND run_labels.value = label.value AND run_labels.run = :run
    )
)

-- name: mentions_words
NOT EXISTS (
    SELECT 1 FROM jsonb_array_elements_text(:words::jsonb) AS word
    WHERE strpos(runs.searched, word.value) = 0
)

-- name: cancel_requested_at
(parsed(runs.doc) ->> 'cancel_requested_at')

-- name: summary
parsed(runs.doc) ->> 'summary'

-- name: labels
parsed(runs.doc) ->> 'labels'

-- name: kept
(parsed(runs.doc) ->> 'kept')

-- name: is_sticky
parsed(runs.doc) -> 'profile' ->> 'kind' = 'sticky_process'

-- name: reminder_times
LATERAL (
    SELECT ordinality - 1 AS key, each.value::bigint AS value
    FROM jsonb_array_elements_text(webhooks.remind_after::jsonb) WITH ORDINALITY AS each (value, ordinality)
)
