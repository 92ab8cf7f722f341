-- name: number_of_finished
SELECT number FROM runs WHERE id = ? AND ended IS NOT NULL FOR UPDATE

-- name: forget_run
WITH forgotten AS (DELETE FROM runs WHERE number = ? RETURNING id)
DELETE FROM collections WHERE name IN (SELECT 'runs/' || id || '/links' FROM forgotten)
