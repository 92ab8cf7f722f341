-- What the data folder has in small files, for the servers of several machines: tokens, sessions, invitations, the list
-- of skills, the keys of links. `collection` is the name of the file. `changes` counts the changes of each collection.
CREATE TABLE collections (
    name TEXT COLLATE "C" PRIMARY KEY,
    changes BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE records (
    collection TEXT COLLATE "C" NOT NULL REFERENCES collections (name),
    key TEXT COLLATE "C" NOT NULL,
    doc TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (collection, key)
);
