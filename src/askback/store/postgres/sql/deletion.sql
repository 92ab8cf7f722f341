-- name: number_of_over
SELECT number FROM runs WHERE id = ? AND ended IS NOT NULL FOR UPDATE
