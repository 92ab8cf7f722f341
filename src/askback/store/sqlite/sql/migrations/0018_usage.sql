-- What each turn has used, one row for each model: written with the end of the turn, and kept when the run is deleted.
-- `day` counts days since 1970, UTC. NULL: the engine does not report it. `turns` is 1 in one row of each turn.
CREATE TABLE turn_usage (
    number INTEGER PRIMARY KEY,
    run INTEGER,
    day INTEGER NOT NULL,
    engine TEXT NOT NULL,
    model TEXT,
    skill TEXT NOT NULL,
    creator TEXT,
    labels TEXT,
    turns INTEGER NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    cached_tokens INTEGER,
    reasoning_tokens INTEGER,
    cost_usd REAL
) STRICT;
CREATE INDEX turn_usage_days ON turn_usage (day);
CREATE INDEX turn_usage_of_runs ON turn_usage (run) WHERE run IS NOT NULL;
