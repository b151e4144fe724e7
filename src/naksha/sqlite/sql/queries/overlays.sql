-- Overlays: what branches write to.

-- name: overlays
-- Those among some overlays that are there, each with the floor of its tables for a collection.
SELECT o.number, k.floor_txn
  FROM naksha_overlay o LEFT JOIN naksha_overlaid k ON k.collection = ?2 AND k.overlay = o.number
 WHERE o.number IN (SELECT value FROM json_each(?1))

-- name: overlays_of
SELECT k.overlay, k.floor_txn FROM naksha_overlaid k JOIN naksha_overlay o ON o.number = k.overlay
 WHERE k.collection = ? ORDER BY k.overlay

-- name: overlaid_of
SELECT overlay, floor_txn FROM naksha_overlaid WHERE collection = ? ORDER BY overlay

-- name: overlay_last
SELECT last_overlay FROM naksha_storage

-- name: overlay_number_set
UPDATE naksha_storage SET last_overlay = max(last_overlay, ?)

-- name: overlay_insert
INSERT INTO naksha_overlay (number) VALUES (?)

-- name: overlay_freeze
UPDATE naksha_overlay SET frozen = 1 WHERE number = ?

-- name: overlay_is_frozen
SELECT frozen FROM naksha_overlay WHERE number = ?

-- name: overlay_delete
DELETE FROM naksha_overlay WHERE number = ?

-- name: overlaid_insert
INSERT INTO naksha_overlaid (collection, overlay) VALUES (?, ?)

-- name: overlaid_delete
DELETE FROM naksha_overlaid WHERE collection = ? AND overlay = ?

-- name: overlaid_raise_floor
UPDATE naksha_overlaid SET floor_txn = max(floor_txn, ?) WHERE collection = ? AND overlay = ?

-- name: overlaid_left
-- Tables of overlays that are dropped.
SELECT c.*, k.overlay FROM naksha_overlaid k JOIN naksha_collection c ON c.number = k.collection
 WHERE NOT EXISTS (SELECT 1 FROM naksha_overlay o WHERE o.number = k.overlay)
 ORDER BY k.overlay, k.collection LIMIT 1

-- name: create_mask
-- The ids that were ever touched here: of these nothing is taken from below any more. The history
-- cannot tell, since it expires.
CREATE TABLE {{mask}} (id TEXT PRIMARY KEY) WITHOUT ROWID

-- name: drop_mask
DROP TABLE {{mask}}

-- name: unmasked
SELECT g.value FROM json_each(?) AS g
 WHERE NOT EXISTS (SELECT 1 FROM {{mask}} m WHERE m.id = g.value)

-- name: fill_mask
INSERT INTO {{mask}} (id) SELECT DISTINCT value FROM json_each(?)

-- name: fill_stage
-- States from below, as they are, under new numbers of features.
INSERT INTO temp.naksha_stage SELECT {{first}} + row_number() OVER (), f.* FROM ({{sources}}) AS f

-- name: fill_boxes
INSERT INTO {{box}} (n, west, east, south, north)
SELECT n, west, east, south, north FROM temp.naksha_stage WHERE west IS NOT NULL

-- name: fill_tags
INSERT INTO {{tag}} (tag, n)
SELECT DISTINCT t.value, s.n
  FROM temp.naksha_stage s, json_each(s.jsondata, '$.properties."@ns:com:here:xyz".tags') t
