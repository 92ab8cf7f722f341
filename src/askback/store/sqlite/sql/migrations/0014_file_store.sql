-- The store of `files` that belongs to these runs: one row. Its mark has the same id. `confirmed`: the mark was seen.
CREATE TABLE file_store (
    single INTEGER PRIMARY KEY CHECK (single = 1),
    id TEXT NOT NULL,
    confirmed INTEGER NOT NULL
) STRICT;
