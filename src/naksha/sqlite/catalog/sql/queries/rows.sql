-- name: pointer_create
INSERT INTO p (r, n, t, c, e, v) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: pointer_fetch
SELECT n, t, c, e, v FROM p WHERE r = ? AND n = ?;

-- name: pointers_list
-- The last name of the page before is in the range, but is not wanted.
SELECT n, t, c, e, v FROM p WHERE r = ? AND n >= ? AND n < ? AND n <> ? ORDER BY n LIMIT ?;

-- name: pointer_swap
UPDATE p SET t = ?, c = ?, e = ?, v = ? WHERE r = ? AND n = ? AND t = ? AND c = ? AND e = ?;

-- name: pointer_delete
DELETE FROM p WHERE r = ? AND n = ? AND t = ? AND c = ? AND e = ?;

-- name: pointers_scan
SELECT r, n, c FROM p WHERE (r, n) > (?, ?) ORDER BY r, n LIMIT ?;

-- name: pointer_delete_scanned
DELETE FROM p WHERE r = ? AND n = ? AND c = ?;

-- name: pointers_delete_some
DELETE FROM p WHERE r = :realm
    AND n IN (SELECT n FROM p WHERE r = :realm LIMIT :most);

-- name: object_fetch
SELECT i, a, k, y, v, c, x FROM o WHERE r = ? AND i = ? AND a = ?;

-- name: object_write
INSERT INTO o (r, i, a, k, y, v, c, x) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (r, i, a) DO UPDATE
    SET k = excluded.k, y = excluded.y, v = excluded.v, c = excluded.c, x = excluded.x;

-- name: object_insert
INSERT INTO o (r, i, a, k, y, v, c, x) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: object_replace
UPDATE o SET k = ?, v = ?, c = ?, x = ? WHERE r = ? AND i = ? AND a = ? AND y = ? AND x = ?;

-- name: object_delete
DELETE FROM o WHERE r = ? AND i = ? AND a = ?;

-- name: object_delete_if
DELETE FROM o WHERE r = ? AND i = ? AND a = ? AND x = ?;

-- name: objects_scan
SELECT r, i, a, y, c FROM o WHERE (r, i, a) > (?, ?, ?) ORDER BY r, i, a LIMIT ?;

-- name: object_delete_scanned
DELETE FROM o WHERE r = ? AND i = ? AND a = ? AND c = ?;

-- name: objects_delete_some
DELETE FROM o WHERE rowid IN (SELECT rowid FROM o WHERE r = :realm LIMIT :most);
