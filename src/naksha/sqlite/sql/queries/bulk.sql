-- name: stage_unsafe
-- Staged features need not survive a crash.
PRAGMA synchronous = OFF

-- name: stage_create
CREATE TABLE stage (id TEXT PRIMARY KEY, jsondata BLOB, geo BLOB, geometry TEXT, west REAL,
                    south REAL, east REAL, north REAL, qrid TEXT, tags BLOB, crid TEXT)

-- name: stage_put
-- The last of several features with the same id wins.
INSERT OR REPLACE INTO stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: stage_all
-- Sorted so that spatial neighbours are written together.
SELECT * FROM stage ORDER BY qrid

-- name: has_features
SELECT EXISTS (SELECT 1 FROM naksha_head WHERE t = ?1)
