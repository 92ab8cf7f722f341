-- The runs that wait until a limit of the model provider ends: `deadline_at` is when they are executed again.
CREATE INDEX runs_parked ON runs (engine, deadline_at) WHERE state = 'queued' AND deadline_at IS NOT NULL;
