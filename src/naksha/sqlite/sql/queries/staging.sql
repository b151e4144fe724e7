-- name: stage_unjournaled
-- A failed stage is discarded, so it needs no journal.
PRAGMA journal_mode = OFF

-- name: stage_alone
PRAGMA locking_mode = EXCLUSIVE

-- name: staged_create
-- Duplicate ids are detected when the parts of a job are combined.
CREATE TABLE stage (id TEXT NOT NULL, jsondata BLOB, geo BLOB, geometry TEXT, west REAL,
                    south REAL, east REAL, north REAL, qrid TEXT, tags BLOB, crid TEXT,
                    uuid TEXT)

-- name: staged_put
INSERT INTO stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: staged_about_create
-- The number of the storage, the collection and its settings that the features were checked with.
CREATE TABLE about (storage INTEGER NOT NULL, collection TEXT NOT NULL, id_prefix TEXT,
                    points_only INTEGER NOT NULL)

-- name: staged_about_put
INSERT INTO about VALUES (?, ?, ?, ?)

-- name: staged_about
SELECT storage, collection, id_prefix, points_only FROM about

-- name: staged_ids_create
CREATE TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID

-- name: staged_attach
ATTACH ? AS part

-- name: staged_detach
DETACH part

-- name: staged_ids_add
INSERT INTO ids SELECT id FROM part.stage ORDER BY id

-- name: staged_ids_twice
SELECT id FROM (SELECT id FROM ids UNION ALL SELECT id FROM part.stage)
 GROUP BY id HAVING count(*) > 1 ORDER BY id LIMIT 1

-- name: staged_ids
SELECT id FROM ids ORDER BY id

-- name: staged_keys
SELECT DISTINCT naksha_key(jsondata, ?) FROM stage

-- name: staged_table
-- The ids of a staged write, in a temporary table of the writing connection.
CREATE TEMP TABLE IF NOT EXISTS naksha_staged (id TEXT PRIMARY KEY) WITHOUT ROWID

-- name: staged_key_table
CREATE TEMP TABLE IF NOT EXISTS naksha_staged_key (value TEXT PRIMARY KEY) WITHOUT ROWID

-- name: staged_clear
DELETE FROM temp.naksha_staged

-- name: staged_insert
INSERT INTO temp.naksha_staged VALUES (?)

-- name: staged_keys_clear
DELETE FROM temp.naksha_staged_key

-- name: staged_keys_insert
INSERT OR IGNORE INTO temp.naksha_staged_key SELECT ?1 WHERE ?1 IS NOT NULL

-- name: absent_table
-- The ids of features to delete.
CREATE TEMP TABLE IF NOT EXISTS naksha_absent (id TEXT PRIMARY KEY) WITHOUT ROWID

-- name: absent_clear
DELETE FROM temp.naksha_absent

-- name: absent_some
SELECT id FROM temp.naksha_absent WHERE id > ? ORDER BY id LIMIT ?

-- name: unstaged
INSERT INTO temp.naksha_absent
SELECT id FROM naksha_head WHERE t = ?1 AND id NOT IN (SELECT id FROM temp.naksha_staged)

-- name: unstaged_of_keys
INSERT INTO temp.naksha_absent
SELECT id FROM naksha_head
 WHERE n BETWEEN ?1 << 40 AND ((?1 + 1) << 40) - 1
   AND naksha_key(CAST(jsondata AS BLOB), ?2) IN (SELECT value FROM temp.naksha_staged_key)
   AND id NOT IN (SELECT id FROM temp.naksha_staged)

-- name: unstaged_among
-- Input are pairs of an id and a key.
INSERT INTO temp.naksha_absent
SELECT value ->> 0 FROM json_each(?)
 WHERE value ->> 0 NOT IN (SELECT id FROM temp.naksha_staged)

-- name: unstaged_among_keys
INSERT INTO temp.naksha_absent
SELECT value ->> 0 FROM json_each(?)
 WHERE value ->> 1 IN (SELECT value FROM temp.naksha_staged_key)
   AND value ->> 0 NOT IN (SELECT id FROM temp.naksha_staged)

-- name: jobs_forget
DELETE FROM naksha_kept WHERE kind = ? AND json_extract(value, '$.at') <= ?
