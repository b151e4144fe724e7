-- Moves tables per collection (up to schema 6) to shared tables; ?1 is the new table number.

-- name: upgrade_order
-- Collections on main, then their rows in overlays.
SELECT number, id, 0 AS overlay FROM naksha_collection
UNION ALL
SELECT c.number, c.id, k.overlay
  FROM naksha_overlaid k JOIN naksha_collection c ON c.number = k.collection
 ORDER BY 3, 1

-- name: upgrade_number
UPDATE naksha_collection SET t = ?1 WHERE number = ?2

-- name: upgrade_overlaid
UPDATE naksha_overlaid SET t = ?1 WHERE collection = ?2 AND overlay = ?3

-- name: upgrade_head
INSERT INTO naksha_head (n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord,
    version, action, author, app_id, updated_at, qrid, mrid)
SELECT (?1 << 40) + n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
       action, author, app_id, updated_at, qrid, mrid
  FROM {{head}} ORDER BY n

-- name: upgrade_box
INSERT INTO naksha_box (n, west, east, south, north, t, t_end)
SELECT (?1 << 40) + n, west, east, south, north, ?1, ?1 + 0.5 FROM {{head}} WHERE west IS NOT NULL

-- name: upgrade_tag
INSERT INTO naksha_tag (tag, n) SELECT tag, (?1 << 40) + n FROM {{tag}}

-- name: upgrade_del
INSERT INTO naksha_del (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    action, author, app_id, updated_at, qrid, mrid)
SELECT (?1 << 40) + i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
       action, author, app_id, updated_at, qrid, mrid
  FROM {{del}} ORDER BY i

-- name: upgrade_hst
INSERT INTO naksha_hst (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    action, author, app_id, updated_at, qrid, mrid, txn_next)
SELECT (?1 << 40) + i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
       action, author, app_id, updated_at, qrid, mrid, txn_next
  FROM {{hst}} ORDER BY i

-- name: upgrade_past
INSERT INTO naksha_past (n, west, east, south, north, t, t_end, since, until)
SELECT (?1 << 40) + i, west, east, south, north, ?1, ?1 + 0.5, since, until FROM {{past}}

-- name: upgrade_past_tag
INSERT INTO naksha_past_tag (tag, n) SELECT tag, (?1 << 40) + i FROM {{past_tag}}

-- name: upgrade_meta
INSERT INTO naksha_meta (t, id, jsondata) SELECT ?1, id, jsondata FROM {{meta}}

-- name: upgrade_mask
INSERT INTO naksha_ids (t, id) SELECT ?1, id FROM {{mask}}

-- name: upgrade_drop
DROP TABLE IF EXISTS {{table}}

-- name: upgrade_last
UPDATE naksha_storage SET last_table = ?

-- name: auto_vacuum
PRAGMA auto_vacuum = INCREMENTAL

-- name: vacuum
VACUUM
