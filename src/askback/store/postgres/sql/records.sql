-- The collection with all its records, or one row without a record.
-- name: read_collection
SELECT collections.changes, records.key, records.doc
FROM collections LEFT JOIN records ON records.collection = collections.name
WHERE collections.name = :name ORDER BY records.key

-- name: make_collection
INSERT INTO collections (name) VALUES (:name) ON CONFLICT DO NOTHING

-- name: lock_collection
SELECT changes, last_change FROM collections WHERE name = :name FOR UPDATE

-- name: put_record
INSERT INTO records (collection, key, doc) VALUES (:name, :key, :doc)
ON CONFLICT (collection, key) DO UPDATE SET doc = excluded.doc

-- name: remove_record
DELETE FROM records WHERE collection = :name AND key = :key

-- name: count_change
UPDATE collections SET changes = changes + 1, last_change = :change WHERE name = :name

-- name: notify
SELECT pg_notify('askback', :text)

-- How often each collection was changed, to see which of them must be read again.
-- name: collection_changes
SELECT name, changes FROM collections WHERE name IN (SELECT value FROM json_each(:names))

-- name: has_record
SELECT 1 FROM records WHERE collection = :name AND key = :key

-- name: make_imported_collection
INSERT INTO collections (name, changes) VALUES (:name, 1)
