-- `number` counts runs as they are created: it orders lists, and keeps what belongs to one run together on disk.
-- `doc` is the whole run; the other columns repeat what is searched for. Times are microseconds since 1970, UTC.
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    state TEXT NOT NULL,
    ended TEXT,
    skill TEXT NOT NULL,
    engine TEXT NOT NULL,
    keeper TEXT NOT NULL,
    worker TEXT,
    created_at INTEGER NOT NULL,
    asked_at INTEGER,
    deadline_at INTEGER,
    last_seq INTEGER NOT NULL,
    doc TEXT NOT NULL
) STRICT;

-- Lists, newest first, by any of the three. `ended` is the state of a run that is over: it is written once, where an
-- index with `state` is written at every move. Runs that are not over are few; those are picked out by state alone.
CREATE INDEX runs_by_state ON runs (state);
CREATE INDEX runs_by_skill ON runs (skill);
CREATE INDEX runs_by_engine ON runs (engine);
CREATE INDEX runs_by_skill_engine ON runs (skill, engine);
CREATE INDEX runs_ended_by_skill ON runs (ended, skill) WHERE ended IS NOT NULL;
CREATE INDEX runs_ended_by_engine ON runs (ended, engine) WHERE ended IS NOT NULL;
CREATE INDEX runs_ended_by_skill_engine ON runs (ended, skill, engine) WHERE ended IS NOT NULL;

-- What is at work or waits. Partial, so that finished runs weigh nothing here.
CREATE INDEX runs_open ON runs (keeper) WHERE state IN ('queued', 'running', 'waiting_user');
CREATE INDEX runs_held ON runs (worker) WHERE worker IS NOT NULL;
CREATE INDEX runs_waiting ON runs (asked_at) WHERE state = 'waiting_user';
CREATE INDEX runs_deadlines ON runs (keeper, deadline_at) WHERE deadline_at IS NOT NULL;

CREATE TABLE requests (
    run INTEGER PRIMARY KEY REFERENCES runs (number),
    input TEXT NOT NULL,
    parameter TEXT NOT NULL
) STRICT;

CREATE TABLE results (
    run INTEGER PRIMARY KEY REFERENCES runs (number),
    data TEXT NOT NULL
) STRICT;

CREATE TABLE interactions (
    number INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (number),
    interaction_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    answered_at INTEGER,
    doc TEXT NOT NULL,
    UNIQUE (run, interaction_id)
) STRICT;

CREATE TABLE events (
    run INTEGER NOT NULL REFERENCES runs (number),
    seq INTEGER NOT NULL,
    type TEXT NOT NULL,
    at INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- One row for every run that is queued. A new `position` is above all that are there: first come, first served.
CREATE TABLE queue (
    position INTEGER PRIMARY KEY,
    run INTEGER NOT NULL UNIQUE REFERENCES runs (number),
    keeper TEXT NOT NULL,
    engine TEXT NOT NULL
) STRICT;

CREATE INDEX queue_lanes ON queue (keeper, engine);

CREATE TABLE idempotency_keys (
    key TEXT PRIMARY KEY,
    body_digest TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES runs (number),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idempotency_keys_run ON idempotency_keys (run);
