-- Finished runs by day, for statistics: added up in the transaction that ends a run, and kept when the run is deleted.
-- `day` counts days since 1970, UTC. `code` is why runs failed, else empty.
CREATE TABLE daily_runs (
    day INTEGER NOT NULL,
    skill TEXT NOT NULL,
    engine TEXT NOT NULL,
    state TEXT NOT NULL,
    code TEXT NOT NULL,
    runs INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    PRIMARY KEY (day, skill, engine, state, code)
) STRICT, WITHOUT ROWID;

-- Only the newest runs, so that a large store opens in bounded time. The limit on tokens is that of new runs.
INSERT INTO daily_runs
SELECT
    coalesce(unixepoch(doc ->> '$.finished_at') / 86400, created_at / 86400000000),
    skill,
    engine,
    ended,
    iif(ended = 'failed', coalesce(doc ->> '$.error.code', ''), ''),
    count(*),
    sum(max(0, min(coalesce(cast(doc ->> '$.usage.input_tokens' AS INTEGER), 0), 1000000000000))),
    sum(max(0, min(coalesce(cast(doc ->> '$.usage.output_tokens' AS INTEGER), 0), 1000000000000))),
    sum(max(0, min(coalesce(cast(doc ->> '$.usage.cached_tokens' AS INTEGER), 0), 1000000000000))),
    sum(max(0, min(coalesce(cast(doc ->> '$.usage.total_tokens' AS INTEGER), 0), 1000000000000)))
FROM runs
WHERE number > (SELECT max(number) FROM runs) - 100000 AND ended IS NOT NULL AND json_valid(doc)
GROUP BY 1, 2, 3, 4, 5;
