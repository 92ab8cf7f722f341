-- Turns with a higher priority come first. A run that is queued already keeps its place among the new ones.
ALTER TABLE queue ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

DROP INDEX queue_lanes;
CREATE INDEX queue_lanes ON queue (owner, engine, priority DESC);
CREATE INDEX queue_by_age ON queue (owner);
