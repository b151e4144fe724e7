-- name: backup_snapshot
SELECT pg_export_snapshot()

-- name: backup_timeout
-- The transaction is idle while pg_dump reads in its snapshot.
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: backup_changed
-- A table of the snapshot that was dropped or renamed since. (to_regclass does not look into the
-- snapshot.)
SELECT k.relname FROM pg_class k JOIN pg_namespace n ON n.oid = k.relnamespace
 WHERE n.nspname = $1 AND k.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
   AND to_regclass(format('%I.%I', n.nspname, k.relname)) IS DISTINCT FROM k.oid
 ORDER BY k.relname LIMIT 1

-- name: backup_storage
SELECT s.id, s.number, (SELECT coalesce(max(v.seq_number), 0) FROM naksha_version v) AS last
  FROM naksha_storage s

-- name: backup_collections
SELECT id FROM naksha_collection WHERE base IS NULL AND dropped_at = 0 ORDER BY id

-- name: backup_count
SELECT count(*) FROM {{table}}

-- name: restore_schema
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)

-- name: restore_postgis
CREATE SCHEMA IF NOT EXISTS {{schema}};
CREATE EXTENSION IF NOT EXISTS postgis SCHEMA {{schema}}
