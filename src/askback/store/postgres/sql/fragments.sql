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

-- name: usage_labels
LATERAL jsonb_each_text(turn_usage.labels::jsonb)

-- name: usage_has_labels
NOT EXISTS (
    SELECT 1 FROM jsonb_array_elements(:labels::jsonb) AS wanted
    WHERE NOT EXISTS (
        SELECT 1 FROM jsonb_each_text(turn_usage.labels::jsonb) AS had
        WHERE had.key = wanted.value ->> 0 AND had.value = wanted.value ->> 1
    )
)

-- The longest words find the rows in an index of trigrams, if the database has one.
-- name: mentions_words
runs.searched LIKE :longest::text AND runs.searched LIKE :second::text AND runs.searched LIKE :third::text AND NOT EXISTS (
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

-- name: share
CASE
    WHEN parties.party = '' THEN NULL
    WHEN jsonb_exists(:named::jsonb, parties.party) THEN (:named::jsonb ->> parties.party)::bigint
    ELSE :usual::bigint
END

-- name: engine_share
CASE
    WHEN parties.party = '' OR jsonb_exists(:of_any_engine::jsonb, parties.party) THEN NULL
    ELSE (:engines::jsonb ->> parties.engine)::bigint
END

-- name: is_waiting
jobs.status < 'doing'

-- name: lane
(jobs.queue_name || '')

-- name: party
coalesce(jobs.args ->> 'party', '') COLLATE "C"

-- A fetched job is justified for a moment, until the run is claimed, and then as long as a worker holds the run.
-- name: is_stalled
jobs.status = 'doing'
    AND (
        jobs.worker_id IS NULL
        OR NOT EXISTS (
            SELECT 1 FROM procrastinate_events AS events
            WHERE events.job_id = jobs.id AND events.type = 'started' AND events.at > now() - make_interval(secs => :claim_sec)
        )
    )
    AND NOT EXISTS (
        SELECT 1 FROM runs
        WHERE runs.id = jobs.args ->> 'run' AND runs.epoch = (jobs.args ->> 'epoch')::bigint + 1 AND runs.worker IS NOT NULL
    )

-- A queued run with a deadline is parked until then.
-- name: has_no_job
runs.state = 'queued' AND runs.deadline_at IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM procrastinate_jobs AS jobs
        WHERE jobs.args ->> 'run' = runs.id AND (jobs.args ->> 'epoch')::bigint = runs.epoch
            AND jobs.status IN ('todo', 'doing')
    )

-- name: is_old
workers.last_heartbeat < now() - make_interval(secs => :worker_sec)

-- name: oldest_format
(SELECT coalesce(max((to_jsonb(step) ->> 'oldest')::bigint), 0) FROM migrations AS step)

-- The last step of the queue that is not additive.
-- name: oldest_queue_step
(SELECT coalesce(max(name), '') FROM queue_migrations WHERE strpos(name, '_pre_') = 0)
