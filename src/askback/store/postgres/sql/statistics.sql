-- name: labelled_days
WITH daily_runs AS (
    SELECT
        coalesce(
            floor(extract(epoch FROM (parsed.doc ->> 'finished_at')::timestamptz) / 86400)::bigint,
            created_at / 86400000000
        ) AS day,
        skill,
        engine,
        runs.ended AS state,
        CASE WHEN runs.ended = 'failed' THEN coalesce(parsed.doc #>> '{error,code}', '') ELSE '' END AS code,
        1 AS runs,
        greatest(0, least(coalesce((parsed.doc #>> '{usage,input_tokens}')::numeric, 0), 1000000000000)) AS input_tokens,
        greatest(0, least(coalesce((parsed.doc #>> '{usage,output_tokens}')::numeric, 0), 1000000000000)) AS output_tokens,
        greatest(0, least(coalesce((parsed.doc #>> '{usage,cached_tokens}')::numeric, 0), 1000000000000)) AS cached_tokens,
        greatest(0, least(coalesce((parsed.doc #>> '{usage,total_tokens}')::numeric, 0), 1000000000000)) AS total_tokens
    FROM run_labels AS wanted
        CROSS JOIN runs
        CROSS JOIN LATERAL (SELECT parsed(runs.doc) AS doc) AS parsed
    WHERE wanted.name = :label_name AND wanted.value = :label_value AND wanted.ended IS NOT NULL
        AND runs.number = wanted.run AND {has_labels}
)
