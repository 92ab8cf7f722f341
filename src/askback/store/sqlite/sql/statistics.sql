-- name: add_finished
INSERT INTO daily_runs
    (day, skill, engine, state, code, runs, input_tokens, output_tokens, cached_tokens, total_tokens)
VALUES (:day, :skill, :engine, :state, :code, 1, :input_tokens, :output_tokens, :cached_tokens, :total_tokens)
ON CONFLICT (day, skill, engine, state, code) DO UPDATE SET
    runs = runs + 1,
    input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens,
    cached_tokens = cached_tokens + excluded.cached_tokens,
    total_tokens = total_tokens + excluded.total_tokens

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

-- name: failures
SELECT day, code, sum(runs)
FROM daily_runs
WHERE day BETWEEN :first AND :last AND state = 'failed'
GROUP BY day, code

-- name: answer_times
SELECT answered_at - asked_at
FROM interactions
WHERE number > (SELECT max(number) FROM interactions) - :latest AND outcome = 'answered' AND +answered_at >= :since

-- name: count_in_state
SELECT count(*) FROM runs WHERE state = ?

-- name: count_some
SELECT count(*) FROM (SELECT 1 FROM runs WHERE number > 0 {filters} LIMIT :most)
