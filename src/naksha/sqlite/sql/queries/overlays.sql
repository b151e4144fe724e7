-- Overlays: the rows that branches write.

-- name: overlays
-- The existing ones of some overlays, each with the floor of its rows of a collection.
SELECT o.number, k.floor_txn, k.t
  FROM naksha_overlay o LEFT JOIN naksha_overlaid k ON k.collection = ?2 AND k.overlay = o.number
 WHERE o.number IN (SELECT value FROM json_each(?1))

-- name: overlays_of
SELECT k.overlay, k.floor_txn, k.t
  FROM naksha_overlaid k JOIN naksha_overlay o ON o.number = k.overlay
 WHERE k.collection = ? ORDER BY k.overlay

-- name: overlaid_of
SELECT overlay, floor_txn, t FROM naksha_overlaid WHERE collection = ? ORDER BY overlay

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
INSERT INTO naksha_overlaid (collection, overlay, t) VALUES (?, ?, ?)

-- name: overlaid_delete
DELETE FROM naksha_overlaid WHERE collection = ? AND overlay = ?

-- name: overlaid_raise_floor
UPDATE naksha_overlaid SET floor_txn = max(floor_txn, ?) WHERE collection = ? AND overlay = ?

-- name: overlaid_trash
-- Maintenance removes the rows of dropped overlays.
INSERT INTO naksha_trash (t)
SELECT t FROM naksha_overlaid WHERE overlay NOT IN (SELECT number FROM naksha_overlay)

-- name: overlaid_forget
DELETE FROM naksha_overlaid WHERE overlay NOT IN (SELECT number FROM naksha_overlay)

-- name: unmasked
SELECT g.value FROM json_each(?2) AS g
 WHERE NOT EXISTS (SELECT 1 FROM naksha_ids m WHERE m.t = ?1 AND m.id = g.value)

-- name: fill_mask
INSERT INTO naksha_ids (t, id) SELECT DISTINCT ?1, value FROM json_each(?2)

-- name: fill_stage
-- Copies states from the layers below unchanged, under new row numbers.
INSERT INTO temp.naksha_stage SELECT {{first}} + row_number() OVER (), f.* FROM ({{sources}}) AS f

-- name: fill_boxes
INSERT INTO naksha_box (n, west, east, south, north, t, t_end, since, until)
SELECT n, west, east, south, north, ?1, ?1 + 0.5, ord, ord + (1 << 24)
  FROM temp.naksha_stage WHERE west IS NOT NULL

-- name: fill_tags
INSERT INTO naksha_tag (tag, n)
SELECT DISTINCT t.value, s.n
  FROM temp.naksha_stage s, json_each(s.jsondata, '$.properties."@ns:com:here:xyz".tags') t
