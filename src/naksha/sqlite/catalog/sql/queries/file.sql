-- name: synchronous
-- What is acknowledged survives a power failure.
PRAGMA synchronous = FULL;

-- name: overwrite
-- What is deleted is not overwritten: what others must not read is protected by other means.
PRAGMA secure_delete = OFF;

-- name: journal_mode
PRAGMA journal_mode;

-- name: wal
-- Readers and the writer do not wait for each other.
PRAGMA journal_mode = WAL;

-- name: busy_timeout_none
-- The writer waits in its own, quicker way.
PRAGMA busy_timeout = 0;

-- name: application_id
PRAGMA application_id;

-- name: application_id_set
PRAGMA application_id = {{value}};

-- name: schema_version
PRAGMA user_version;

-- name: schema_version_set
PRAGMA user_version = {{value}};

-- name: table_count
SELECT count(*) FROM sqlite_schema;

-- name: begin_reading
BEGIN;

-- name: begin
BEGIN IMMEDIATE;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: savepoint
SAVEPOINT one;

-- name: release
RELEASE one;

-- name: undo
ROLLBACK TO one;
