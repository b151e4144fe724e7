-- Statements of the library's own writes; the triggers stand aside.

-- name: stage_table
-- New rows on their way to the tables; of the connection that writes.
CREATE TEMP TABLE naksha_stage (n INTEGER PRIMARY KEY, i, id, geo, geometry, jsondata, west, south,
    east, north, txn, ord, version, action, author, app_id, updated_at, qrid, mrid)

-- name: stage_clear
DELETE FROM temp.naksha_stage

-- name: stage_insert
INSERT INTO temp.naksha_stage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: old_columns
o.i, o.id, o.geo, o.geometry, o.jsondata, o.west, o.south, o.east, o.north, o.txn, o.ord, o.version,
o.action, o.author, o.app_id, o.updated_at, o.qrid, o.mrid

-- name: heads
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north
  FROM {{head}} WHERE id IN (SELECT value FROM json_each(?))

-- name: tombstones
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north
  FROM {{del}} WHERE id IN (SELECT value FROM json_each(?))

-- name: geometries
SELECT id, geometry FROM {{table}} WHERE id IN (SELECT value FROM json_each(?))

-- name: next_n
SELECT coalesce(max(n), 0) + 1 FROM {{head}}

-- name: insert_heads
INSERT INTO {{head}} (n, {{columns}}) SELECT n, {{columns}} FROM temp.naksha_stage

-- name: update_heads
-- All but what the next two statements are about. The plus keeps the planner from reading all of
-- HEAD, to look up for each of its rows whether it is staged.
UPDATE {{head}} AS o
   SET i = s.i, geo = s.geo, geometry = s.geometry, jsondata = s.jsondata, west = s.west,
       south = s.south, east = s.east, north = s.north, txn = s.txn, ord = s.ord,
       version = s.version, app_id = s.app_id, updated_at = s.updated_at
  FROM temp.naksha_stage s WHERE o.n = +s.n

-- name: update_heads_signed
-- Every column that is set is written anew in its indices, also when it stays the same. In a large
-- table that is a page of its own for each feature and index.
UPDATE {{head}} AS o SET action = s.action, author = s.author
  FROM temp.naksha_stage s
 WHERE o.n = +s.n AND (o.action IS NOT s.action OR o.author IS NOT s.author)

-- name: update_heads_moved
UPDATE {{head}} AS o SET qrid = s.qrid, mrid = s.mrid
  FROM temp.naksha_stage s WHERE o.n = +s.n AND (o.qrid IS NOT s.qrid OR o.mrid IS NOT s.mrid)

-- name: heads_to_history
INSERT INTO {{hst}} ({{columns}}, txn_next)
SELECT {{old_columns}}, ? FROM temp.naksha_stage s CROSS JOIN {{head}} o ON o.n = s.n

-- name: heads_to_past
-- The box of a state without geometry is out of the world, where only its time can be asked for.
INSERT INTO {{past}} (i, west, east, south, north, since, until)
SELECT o.i, coalesce(o.west, 1000), coalesce(o.east, 1000), coalesce(o.south, 1000),
       coalesce(o.north, 1000), o.ord, ?
  FROM temp.naksha_stage s CROSS JOIN {{head}} o ON o.n = s.n WHERE o.txn < ?

-- name: head_tags_to_past
INSERT INTO {{past_tag}} (tag, i)
SELECT t.tag, o.i
  FROM temp.naksha_stage s CROSS JOIN {{head}} o ON o.n = s.n CROSS JOIN {{tag}} t ON t.n = o.n
 WHERE o.txn < ?

-- name: delete_heads
DELETE FROM {{head}} WHERE n IN (SELECT n FROM temp.naksha_stage)

-- name: tombs_to_history
INSERT INTO {{hst}} ({{columns}}, txn_next)
SELECT {{old_columns}}, ? FROM temp.naksha_stage s CROSS JOIN {{del}} o ON o.id = s.id

-- name: delete_tombs
DELETE FROM {{del}} WHERE id IN (SELECT id FROM temp.naksha_stage)

-- name: insert_tombs
INSERT INTO {{del}} ({{columns}}) SELECT {{columns}} FROM temp.naksha_stage

-- name: insert_box
INSERT INTO {{box}} (n, west, east, south, north) VALUES (?, ?, ?, ?, ?)

-- name: move_box
UPDATE {{box}} SET west = ?, east = ?, south = ?, north = ? WHERE n = ?

-- name: delete_box
DELETE FROM {{box}} WHERE n = ?

-- name: insert_tag
INSERT INTO {{tag}} (tag, n) VALUES (?, ?)

-- name: delete_tags
DELETE FROM {{tag}} WHERE n = ?
