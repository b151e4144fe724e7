-- Statements of the library's own writes, for which triggers are inactive. ?1 is the table number.

-- name: stage_table
-- New rows before they are written to the tables; a temporary table of the writing connection.
CREATE TEMP TABLE naksha_stage (n INTEGER PRIMARY KEY, i, id, geo, geometry, jsondata, west, south,
    east, north, txn, ord, version, action, author, app_id, updated_at, qrid, mrid)

-- name: stage_clear
DELETE FROM temp.naksha_stage

-- name: stage_insert
INSERT INTO temp.naksha_stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: heads
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north,
       s.geometry IS NULL OR {{readable}}
  FROM naksha_head AS s WHERE t = ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: tombstones
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north,
       s.geometry IS NULL OR {{readable}}
  FROM naksha_del AS s WHERE t = ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: head_geometries
SELECT id, geometry FROM naksha_head WHERE t = ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: tombstone_geometries
SELECT id, geometry FROM naksha_del WHERE t = ?1 AND id IN (SELECT value FROM json_each(?2))

-- name: next_n
SELECT coalesce(max(n), ?1 << 40) + 1 FROM naksha_head
 WHERE n BETWEEN ?1 << 40 AND ((?1 + 1) << 40) - 1

-- name: insert_heads
INSERT INTO naksha_head (n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord,
    version, action, author, app_id, updated_at, qrid, mrid)
SELECT * FROM temp.naksha_stage

-- name: update_heads
-- All columns except those of the next two statements. The unary plus prevents a plan that scans
-- all of HEAD and looks up each row in the stage.
UPDATE naksha_head AS o
   SET i = s.i, geo = s.geo, geometry = s.geometry, jsondata = s.jsondata, west = s.west,
       south = s.south, east = s.east, north = s.north, txn = s.txn, ord = s.ord,
       version = s.version, app_id = s.app_id, updated_at = s.updated_at
  FROM temp.naksha_stage s WHERE o.n = +s.n

-- name: update_heads_signed
-- SQLite rewrites the index entries of every column that is set, even if the value is unchanged. In
-- a large table that costs one page per feature and index.
UPDATE naksha_head AS o SET action = s.action, author = s.author
  FROM temp.naksha_stage s
 WHERE o.n = +s.n AND (o.action IS NOT s.action OR o.author IS NOT s.author)

-- name: update_heads_moved
UPDATE naksha_head AS o SET qrid = s.qrid, mrid = s.mrid
  FROM temp.naksha_stage s WHERE o.n = +s.n AND (o.qrid IS NOT s.qrid OR o.mrid IS NOT s.mrid)

-- name: heads_to_history
INSERT INTO naksha_hst (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    action, author, app_id, updated_at, qrid, mrid, txn_next)
SELECT (?1 << 40) + o.i, o.id, o.geo, o.geometry, o.jsondata, o.west, o.south, o.east, o.north,
       o.txn, o.ord, o.version, o.action, o.author, o.app_id, o.updated_at, o.qrid, o.mrid, ?2
  FROM temp.naksha_stage s CROSS JOIN naksha_head o ON o.n = s.n

-- name: heads_to_past
-- A state without geometry gets a box outside of the world, so that only queries by time find it.
INSERT INTO naksha_past (n, west, east, south, north, t, t_end, since, until)
SELECT (?1 << 40) + o.i, coalesce(o.west, 1000), coalesce(o.east, 1000), coalesce(o.south, 1000),
       coalesce(o.north, 1000), ?1, ?1 + 0.5, o.ord, ?2
  FROM temp.naksha_stage s CROSS JOIN naksha_head o ON o.n = s.n WHERE o.txn < ?3

-- name: head_tags_to_past
INSERT INTO naksha_past_tag (tag, n)
SELECT t.tag, (?1 << 40) + o.i
  FROM temp.naksha_stage s CROSS JOIN naksha_head o ON o.n = s.n
       CROSS JOIN naksha_tag t ON t.n = o.n
 WHERE o.txn < ?2

-- name: delete_heads
DELETE FROM naksha_head WHERE n IN (SELECT n FROM temp.naksha_stage)

-- name: tombs_to_history
INSERT INTO naksha_hst (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    action, author, app_id, updated_at, qrid, mrid, txn_next)
SELECT o.n, o.id, o.geo, o.geometry, o.jsondata, o.west, o.south, o.east, o.north, o.txn, o.ord,
       o.version, o.action, o.author, o.app_id, o.updated_at, o.qrid, o.mrid, ?2
  FROM temp.naksha_stage s CROSS JOIN naksha_del o ON o.t = ?1 AND o.id = s.id

-- name: delete_tombs
DELETE FROM naksha_del WHERE t = ?1 AND id IN (SELECT id FROM temp.naksha_stage)

-- name: insert_tombs
INSERT INTO naksha_del (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    action, author, app_id, updated_at, qrid, mrid)
SELECT (?1 << 40) + i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
       action, author, app_id, updated_at, qrid, mrid
  FROM temp.naksha_stage

-- name: insert_box
INSERT INTO naksha_box (n, west, east, south, north, t, t_end, since, until)
VALUES (?1, ?2, ?3, ?4, ?5, ?1 >> 40, (?1 >> 40) + 0.5, ?6, ?6 + (1 << 24))

-- name: move_box
UPDATE naksha_box
   SET west = ?2, east = ?3, south = ?4, north = ?5, since = ?6, until = ?6 + (1 << 24)
 WHERE n = ?1

-- name: delete_box
DELETE FROM naksha_box WHERE n = ?

-- name: insert_tag
INSERT INTO naksha_tag (tag, n) VALUES (?, ?)

-- name: delete_tags
DELETE FROM naksha_tag WHERE n = ?
