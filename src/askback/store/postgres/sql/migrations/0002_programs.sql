-- The programs that work on this database. One is alive as long as `lease_until` is ahead, by the clock of the database.
-- `doc` has what the others must know of it: labels, slots, engines, folders.
CREATE TABLE programs (
    name TEXT COLLATE "C" PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    pid BIGINT NOT NULL,
    boot_id TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    started_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    lease_until TIMESTAMPTZ NOT NULL,
    doc TEXT COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX programs_alive ON programs (lease_until);
