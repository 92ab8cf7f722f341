-- The labels of runs, for queries. `ended` repeats that of the run, so that lists of finished runs need no search.
CREATE TABLE run_labels (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (number),
    ended TEXT,
    PRIMARY KEY (name, value, run)
) STRICT, WITHOUT ROWID;

CREATE INDEX run_labels_ended ON run_labels (name, value, ended, run) WHERE ended IS NOT NULL;
CREATE INDEX run_labels_of_run ON run_labels (run);

-- The labels that a run must have for a webhook to be notified of it, as JSON: {"customer": "4711"}.
ALTER TABLE webhooks ADD COLUMN labels TEXT;
