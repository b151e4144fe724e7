-- name: session_mode
-- Whatever the server's defaults are: what does not fit is an error, and a lock that is not given
-- in time is reported before the caller gives up.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = ?;

-- name: session_isolation
-- A statement sees what is committed when it starts; nothing here needs more, and less is locked.
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- name: variables
SHOW VARIABLES WHERE Variable_name IN (
    'version', 'max_allowed_packet', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog',
    'wsrep_on', 'read_only'
);

-- name: write_format
INSERT IGNORE INTO naksha_format (only_row, version) VALUES (1, ?);

-- name: read_format
SELECT version FROM naksha_format;
