-- What the data folder has in small files, for the servers of several machines: tokens, sessions, invitations, the list
-- of skills, links, and keys. `name` is that of the file. `changes` counts the changes of each collection. `last_change`
-- tells a program that lost its connection during COMMIT whether its change was committed.
CREATE TABLE collections (
    name TEXT COLLATE "C" PRIMARY KEY,
    changes BIGINT NOT NULL DEFAULT 0,
    last_change TEXT COLLATE "C"
);

CREATE TABLE records (
    collection TEXT COLLATE "C" NOT NULL REFERENCES collections (name) ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    doc TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (collection, key)
);
