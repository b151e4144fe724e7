-- name: kept
SELECT kind, id, value, revision FROM naksha_kept WHERE kind = ? AND id = ?

-- name: kept_from
SELECT kind, id, value, revision FROM naksha_kept WHERE kind = ? AND id >= ? ORDER BY id

-- name: kept_between
SELECT kind, id, value, revision FROM naksha_kept
 WHERE kind = ? AND id >= ? AND id < ? ORDER BY id

-- name: kept_put
INSERT INTO naksha_kept (kind, id, value, revision) VALUES (?, ?, ?, ?)
ON CONFLICT (kind, id) DO UPDATE SET value = excluded.value, revision = excluded.revision

-- name: kept_delete
DELETE FROM naksha_kept WHERE kind = ? AND id = ?

-- name: pin
INSERT INTO naksha_pin (name, collection, txn, guards) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE
   SET collection = excluded.collection, txn = excluded.txn, guards = excluded.guards

-- name: unpin
DELETE FROM naksha_pin WHERE name = ?

-- name: guarding_pin
-- A pin by the collection's name, or a pin on all collections that existed.
SELECT name FROM naksha_pin
 WHERE guards AND (collection = ?1 OR (collection IS NULL AND txn >= ?2)) ORDER BY name LIMIT 1
