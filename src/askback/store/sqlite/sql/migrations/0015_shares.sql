-- The queue is shared fairly among tokens: `party` is the token that created the run, or empty.
ALTER TABLE queue ADD COLUMN party TEXT NOT NULL DEFAULT '';
UPDATE queue SET party = coalesce((SELECT creator FROM runs WHERE runs.number = queue.run), '');

DROP INDEX queue_lanes;
CREATE INDEX queue_lanes ON queue (owner, engine, party, priority DESC);

-- When each party was last served in each class of the queue. The numbers only have an order.
CREATE TABLE queue_service (
    party TEXT NOT NULL,
    priority INTEGER NOT NULL,
    served INTEGER NOT NULL,
    PRIMARY KEY (party, priority)
) STRICT, WITHOUT ROWID;
CREATE INDEX queue_service_order ON queue_service (served);

-- The slots of each token.
CREATE INDEX runs_held_by_creator ON runs (creator) WHERE worker IS NOT NULL;
