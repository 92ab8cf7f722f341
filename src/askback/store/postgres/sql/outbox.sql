-- Another program that claims at the same moment gets others.
-- name: claim_deliveries
UPDATE deliveries
SET attempts = attempts + 1, next_attempt_at = :until,
    doc = coalesce(doc, (SELECT runs.doc FROM runs WHERE runs.number = deliveries.run))
WHERE number = ANY (ARRAY(
    SELECT number FROM deliveries AS due
    WHERE due.next_attempt_at <= :at AND {is_free}
    ORDER BY due.next_attempt_at, due.number
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
RETURNING number
