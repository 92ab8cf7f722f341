-- The name of the token that a run was created with; NULL for runs of this machine's own user. For quotas.
ALTER TABLE runs ADD COLUMN creator TEXT;

CREATE INDEX runs_open_by_creator ON runs (creator)
WHERE creator IS NOT NULL AND state IN ('queued', 'running', 'waiting_user');
