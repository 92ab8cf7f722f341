-- `run` is NULL for a webhook of the server's settings. One that is no longer there is kept, without `active`, for as
-- long as the log of its deliveries. `states` is NULL for all, else `,failed,succeeded,`.
CREATE TABLE webhooks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER REFERENCES runs (number),
    url TEXT NOT NULL,
    host TEXT NOT NULL,
    secret TEXT,
    kind TEXT NOT NULL,
    states TEXT,
    active INTEGER NOT NULL DEFAULT 1
) STRICT;

CREATE INDEX webhooks_run ON webhooks (run);

-- The outbox and its log: one row for each webhook and change of state, written with the change itself.
-- `doc` is the run right after the change; it is dropped once nothing will be sent any more (`next_attempt_at` NULL).
CREATE TABLE deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook INTEGER NOT NULL REFERENCES webhooks (number),
    run INTEGER NOT NULL REFERENCES runs (number),
    seq INTEGER NOT NULL,
    old TEXT,
    new TEXT NOT NULL,
    at INTEGER NOT NULL,
    doc TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_status INTEGER,
    last_error TEXT,
    next_attempt_at INTEGER,
    delivered_at INTEGER,
    UNIQUE (webhook, run, seq)
) STRICT;

CREATE INDEX deliveries_run ON deliveries (run);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
