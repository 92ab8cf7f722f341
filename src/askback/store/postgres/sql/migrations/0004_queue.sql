-- The queue is in the tables of Procrastinate, which come from its package: see `schema.py`. This is what was applied of
-- its migrations.
CREATE TABLE queue_migrations (
    name TEXT COLLATE "C" PRIMARY KEY,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
