-- name: backup_begin
BEGIN

-- name: backup_end
COMMIT

-- name: journal_single
PRAGMA journal_mode = DELETE

-- name: integrity
PRAGMA integrity_check(1)

-- name: quick_check
PRAGMA quick_check(1)
