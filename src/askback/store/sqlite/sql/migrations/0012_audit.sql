-- What was written, by whom and by which way. No reference to runs: an entry outlives its run.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    via TEXT NOT NULL,
    action TEXT NOT NULL,
    run_id TEXT,
    interaction_id TEXT,
    object TEXT,
    address TEXT
) STRICT;

CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_of_run ON audit (run_id, number) WHERE run_id IS NOT NULL;
