-- name: add_finished
INSERT INTO daily_runs
    (day, skill, engine, state, code, runs, input_tokens, output_tokens, cached_tokens, total_tokens)
VALUES (:day, :skill, :engine, :state, :code, 1, :input_tokens, :output_tokens, :cached_tokens, :total_tokens)
ON CONFLICT (day, skill, engine, state, code) DO UPDATE SET
    runs = daily_runs.runs + 1,
    input_tokens = daily_runs.input_tokens + excluded.input_tokens,
    output_tokens = daily_runs.output_tokens + excluded.output_tokens,
    cached_tokens = daily_runs.cached_tokens + excluded.cached_tokens,
    total_tokens = daily_runs.total_tokens + excluded.total_tokens

-- name: finished_by
SELECT
    {column},
    sum(runs) FILTER (WHERE state = 'succeeded'),
    sum(runs) FILTER (WHERE state = 'failed'),
    sum(runs) FILTER (WHERE state = 'canceled'),
    sum(input_tokens),
    sum(output_tokens),
    sum(cached_tokens),
    sum(total_tokens)
FROM daily_runs
WHERE day BETWEEN :first AND :last
GROUP BY {column}
ORDER BY sum(runs) DESC, {column}
LIMIT :limit

-- Finished runs with labels, in the form of `daily_runs`. They are not added up in advance: any labels may be asked for.
-- name: labelled_days
WITH daily_runs AS (
    SELECT
        coalesce(unixepoch(doc ->> '$.finished_at') / 86400, created_at / 86400000000) AS day,
        skill,
        engine,
        runs.ended AS state,
        iif(runs.ended = 'failed', coalesce(doc ->> '$.error.code', ''), '') AS code,
        1 AS runs,
        max(0, min(coalesce(cast(doc ->> '$.usage.input_tokens' AS INTEGER), 0), 1000000000000)) AS input_tokens,
        max(0, min(coalesce(cast(doc ->> '$.usage.output_tokens' AS INTEGER), 0), 1000000000000)) AS output_tokens,
        max(0, min(coalesce(cast(doc ->> '$.usage.cached_tokens' AS INTEGER), 0), 1000000000000)) AS cached_tokens,
        max(0, min(coalesce(cast(doc ->> '$.usage.total_tokens' AS INTEGER), 0), 1000000000000)) AS total_tokens
    FROM run_labels AS wanted CROSS JOIN runs
    WHERE wanted.name = :label_name AND wanted.value = :label_value AND wanted.ended IS NOT NULL
        AND runs.number = wanted.run AND {has_labels}
)

-- name: failures
SELECT day, code, sum(runs)
FROM daily_runs
WHERE day BETWEEN :first AND :last AND state = 'failed'
GROUP BY day, code

-- name: answer_times
SELECT answered_at - asked_at
FROM interactions
WHERE number > (SELECT max(number) FROM interactions) - :latest AND outcome = 'answered' AND +answered_at >= :since

-- name: answer_times_labelled
SELECT interactions.answered_at - interactions.asked_at
FROM run_labels AS wanted CROSS JOIN runs CROSS JOIN interactions
WHERE wanted.name = :label_name AND wanted.value = :label_value AND runs.number = wanted.run
    AND interactions.run = wanted.run AND interactions.outcome = 'answered' AND interactions.answered_at >= :since
    AND {has_labels}
ORDER BY interactions.number DESC
LIMIT :latest

-- name: count_in_state
SELECT count(*) FROM runs WHERE state = :state AND (:labels IS NULL OR {has_labels})

-- name: count_runs
SELECT count(*) FROM (SELECT 1 FROM runs WHERE number > 0 {filters} LIMIT :most) AS found

-- name: count_labelled_by_state
SELECT count(*) FROM (SELECT 1 FROM runs WHERE number > 0 {filters} AND {has_labels} LIMIT :most) AS found

-- name: count_labelled
SELECT count(*) FROM (
    SELECT 1
    FROM run_labels AS wanted CROSS JOIN runs
    WHERE wanted.name = :label_name AND wanted.value = :label_value {wanted}
        AND runs.number = wanted.run {filters} AND {has_labels}
    LIMIT :most
) AS found

-- Labels are empty once the run was deleted.
-- name: add_usage
INSERT INTO turn_usage
    (run, day, engine, model, skill, creator, labels, turns, input_tokens, output_tokens, cached_tokens, reasoning_tokens,
     cost_usd)
VALUES
    (:run, :day, :engine, :model, :skill, :creator, :labels, :turns, :input_tokens, :output_tokens, :cached_tokens,
     :reasoning_tokens, :cost_usd)

-- name: usage_total
SELECT sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})

-- name: usage_by_day
SELECT day, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})
GROUP BY day
ORDER BY sum(input_tokens) DESC NULLS LAST, day
LIMIT :limit

-- name: usage_by_engine
SELECT engine, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})
GROUP BY engine
ORDER BY sum(input_tokens) DESC NULLS LAST, engine
LIMIT :limit

-- name: usage_by_model
SELECT model, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})
GROUP BY model
ORDER BY sum(input_tokens) DESC NULLS LAST, model
LIMIT :limit

-- name: usage_by_skill
SELECT skill, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})
GROUP BY skill
ORDER BY sum(input_tokens) DESC NULLS LAST, skill
LIMIT :limit

-- name: usage_by_token
SELECT creator, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage
WHERE day BETWEEN :first AND :last AND (:labels IS NULL OR {usage_has_labels})
GROUP BY creator
ORDER BY sum(input_tokens) DESC NULLS LAST, creator
LIMIT :limit

-- name: usage_by_label
SELECT own.key || '=' || own.value, sum(turns), sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens), sum(cost_usd),
    sum(CASE WHEN cost_usd IS NOT NULL THEN turns END)
FROM turn_usage CROSS JOIN {usage_labels} AS own
WHERE day BETWEEN :first AND :last AND turn_usage.labels IS NOT NULL AND (:labels IS NULL OR {usage_has_labels})
GROUP BY 1
ORDER BY sum(input_tokens) DESC NULLS LAST, 1
LIMIT :limit
