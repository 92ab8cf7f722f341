-- The user's folder that a run works in. No two unfinished runs share one.
ALTER TABLE runs ADD COLUMN workdir TEXT;

CREATE INDEX runs_open_in_workdirs ON runs (workdir)
WHERE workdir IS NOT NULL AND state IN ('queued', 'running', 'waiting_user');
