-- The questions of the inbox are counted by skill and engine, each time that a page with the inbox is shown or changes.
-- With this index, the rows of the runs are not read for that.
CREATE INDEX runs_waiting_counted ON runs (skill, engine, asked_at) WHERE state = 'waiting_user' AND asked_at IS NOT NULL;
