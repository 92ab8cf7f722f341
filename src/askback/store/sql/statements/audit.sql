-- name: insert_audit_entry
INSERT INTO audit (at, actor, via, action, run_id, interaction_id, object, address)
VALUES (:at, :actor, :via, :action, :run_id, :interaction_id, :object, :address)

-- name: audit_entries
SELECT number, at, actor, via, action, run_id, interaction_id, object, address
FROM audit
WHERE number < :before{conditions}
ORDER BY number DESC
LIMIT :limit

-- name: expire_audit
DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE at < :before ORDER BY at LIMIT :limit)
RETURNING number
