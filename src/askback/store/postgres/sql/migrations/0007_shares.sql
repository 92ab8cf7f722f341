-- When each party was last served in each class of the queue: `party` is the token that created the run, or empty.
CREATE TABLE queue_service (
    party TEXT COLLATE "C" NOT NULL,
    priority BIGINT NOT NULL,
    served BIGINT NOT NULL,
    PRIMARY KEY (party, priority)
);
CREATE SEQUENCE queue_service_numbers;

-- The slots of each token, and the runs of a worker that has died.
CREATE INDEX runs_held_by_creator ON runs (creator) WHERE worker IS NOT NULL;
CREATE INDEX runs_held_by_worker ON runs (worker) WHERE worker IS NOT NULL;
