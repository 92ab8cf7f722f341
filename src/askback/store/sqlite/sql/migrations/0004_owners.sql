-- A run's program is its owner, and a turn that starts again is restarted.
ALTER TABLE runs RENAME COLUMN keeper TO owner;
ALTER TABLE queue RENAME COLUMN keeper TO owner;

UPDATE runs
SET doc = json_remove(
    json_set(doc, '$.owner', owner, '$.restarts', coalesce(json_extract(doc, '$.take_ups'), 0)),
    '$.keeper', '$.take_ups'
)
WHERE json_valid(doc);
