-- Whether the deadline of the pending question was announced.
ALTER TABLE runs ADD COLUMN expiring INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_unannounced ON runs (owner, deadline_at) WHERE deadline_at IS NOT NULL AND NOT expiring;

-- `remind_after` is a JSON array of microseconds after a question was asked, or NULL. `expiring` is 1 for a webhook that
-- is notified of near deadlines.
ALTER TABLE webhooks ADD COLUMN remind_after TEXT;
ALTER TABLE webhooks ADD COLUMN expiring INTEGER NOT NULL DEFAULT 0;

-- A change of state has one row for each webhook; a question has further ones, numbered by `place`, for its reminders.
-- They are written with the question, due at their time, and gone when the question is closed.
CREATE TABLE deliveries_anew (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook INTEGER NOT NULL REFERENCES webhooks (number),
    run INTEGER NOT NULL REFERENCES runs (number),
    seq INTEGER NOT NULL,
    place INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT 'state',
    old TEXT,
    new TEXT NOT NULL,
    at INTEGER NOT NULL,
    doc TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_status INTEGER,
    last_error TEXT,
    next_attempt_at INTEGER,
    delivered_at INTEGER,
    UNIQUE (webhook, run, seq, place)
) STRICT;

INSERT INTO deliveries_anew
    (number, webhook, run, seq, old, new, at, doc, attempts, last_status, last_error, next_attempt_at, delivered_at)
SELECT number, webhook, run, seq, old, new, at, doc, attempts, last_status, last_error, next_attempt_at, delivered_at
FROM deliveries;

-- Numbers of deleted rows are not used again.
DELETE FROM sqlite_sequence WHERE name = 'deliveries_anew';
INSERT INTO sqlite_sequence (name, seq) SELECT 'deliveries_anew', seq FROM sqlite_sequence WHERE name = 'deliveries';

DROP TABLE deliveries;
ALTER TABLE deliveries_anew RENAME TO deliveries;

CREATE INDEX deliveries_run ON deliveries (run);
CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE next_attempt_at IS NOT NULL;
