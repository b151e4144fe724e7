-- name: stage_unsafe
-- Staged features need not survive a crash.
PRAGMA synchronous = OFF

-- name: stage_all
-- Sorted so that spatial neighbours are written together.
SELECT * FROM stage ORDER BY qrid
