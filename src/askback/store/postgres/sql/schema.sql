-- The oldest format that a program must know. The column is missing until the first upgrade by a version that has it.
-- name: oldest_format
SELECT {oldest_format}

-- name: newest_format
SELECT coalesce(max(version), 0) FROM migrations

-- Without the extension, which needs the right to create it, a search reads every open question.
-- name: index_search
DO $$
DECLARE place TEXT;
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    SELECT nspname INTO place FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'pg_trgm';
    EXECUTE format(
        'CREATE INDEX IF NOT EXISTS runs_searched ON runs USING gin (searched %I.gin_trgm_ops) WHERE state = ''waiting_user''',
        place
    );
EXCEPTION WHEN insufficient_privilege OR undefined_file OR feature_not_supported THEN
    NULL;
END $$

-- name: record_step
INSERT INTO migrations (version, oldest) VALUES (:version, :oldest)

-- name: applied_queue_steps
SELECT name FROM queue_migrations ORDER BY name

-- name: record_queue_step
INSERT INTO queue_migrations (name) VALUES (:name)

-- name: claim_data_folder
INSERT INTO data_folder (id, runs_dir, shared) VALUES (:id, :runs_dir, :shared) ON CONFLICT DO NOTHING

-- name: data_folder
SELECT id, runs_dir, shared FROM data_folder

-- name: set_runs_dir
UPDATE data_folder SET runs_dir = :runs_dir

-- name: share_data_folder
UPDATE data_folder SET shared = true

-- name: has_unshared_files
SELECT EXISTS (SELECT 1 FROM data_folder WHERE id = :id AND NOT shared)

-- name: mark_files
UPDATE data_folder SET shared = :shared WHERE id = :id AND shared <> :shared

-- name: has_file_store
SELECT EXISTS (SELECT 1 FROM file_store WHERE confirmed = 1)

-- name: has_unfinished_runs
SELECT EXISTS (SELECT 1 FROM runs WHERE state IN ('queued', 'running', 'waiting_user'))
