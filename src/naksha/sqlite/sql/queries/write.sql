-- Statements of the library's own writes; the triggers stand aside.

-- name: heads
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north
  FROM {{head}} WHERE id IN (SELECT value FROM json_each(?))

-- name: tombstones
SELECT id, n, i, txn, version, action, author, geo, jsondata, west, south, east, north
  FROM {{del}} WHERE id IN (SELECT value FROM json_each(?))

-- name: insert_head
INSERT INTO {{head}} ({{columns}})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING n

-- name: insert_head_n
INSERT INTO {{head}} (n, {{columns}})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: next_n
SELECT coalesce(max(n), 0) + 1 FROM {{head}}

-- name: update_head
-- The geometry and its box are as they were.
UPDATE {{head}} SET i = ?, jsondata = ?, txn = ?, ord = ?, version = ?, action = ?, author = ?,
       app_id = ?, updated_at = ?, mrid = ? WHERE n = ?

-- name: update_head_geo
UPDATE {{head}} SET i = ?, jsondata = ?, txn = ?, ord = ?, version = ?, action = ?, author = ?,
       app_id = ?, updated_at = ?, mrid = ?, geo = ?, geometry = ?, west = ?, south = ?,
       east = ?, north = ?, qrid = ? WHERE n = ?

-- name: head_to_history
INSERT INTO {{hst}} ({{columns}}, txn_next) SELECT {{columns}}, ? FROM {{head}} WHERE n = ?

-- name: tomb_to_history
INSERT INTO {{hst}} ({{columns}}, txn_next) SELECT {{columns}}, ? FROM {{del}} WHERE n = ?

-- name: head_to_past
-- The box of a state without geometry is out of the world, where only its time can be asked for.
INSERT INTO {{past}} (i, west, east, south, north, since, until)
SELECT i, coalesce(west, 1000), coalesce(east, 1000), coalesce(south, 1000), coalesce(north, 1000),
       ord, ? FROM {{head}} WHERE n = ?

-- name: head_tags_to_past
INSERT INTO {{past_tag}} (tag, i)
SELECT t.tag, h.i FROM {{head}} h JOIN {{tag}} t ON t.n = h.n WHERE h.n = ?

-- name: delete_head
DELETE FROM {{head}} WHERE n = ?

-- name: delete_tomb
DELETE FROM {{del}} WHERE n = ?

-- name: insert_tomb
INSERT INTO {{del}} ({{columns}})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_box
INSERT INTO {{box}} (n, west, east, south, north) VALUES (?, ?, ?, ?, ?)

-- name: delete_box
DELETE FROM {{box}} WHERE n = ?

-- name: insert_tag
INSERT INTO {{tag}} (tag, n) VALUES (?, ?)

-- name: delete_tags
DELETE FROM {{tag}} WHERE n = ?

-- name: geometries
SELECT id, geometry FROM {{table}} WHERE id IN (SELECT value FROM json_each(?))
