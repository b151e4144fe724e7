-- name: stage_unsafe
-- What is staged is worth nothing after a crash.
PRAGMA synchronous = OFF

-- name: stage_create
CREATE TABLE stage (id TEXT PRIMARY KEY, jsondata BLOB, geo BLOB, geometry TEXT, west REAL,
                    south REAL, east REAL, north REAL, qrid TEXT, tags BLOB, crid TEXT)

-- name: stage_put
-- Of features with the same id the last one counts.
INSERT OR REPLACE INTO stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: stage_all
-- Neighbours are written together.
SELECT * FROM stage ORDER BY qrid

-- name: has_features
SELECT EXISTS (SELECT 1 FROM naksha_head WHERE t = ?1)
