-- name: meta_get
SELECT jsondata FROM {{meta}} WHERE id = ?

-- name: meta_put
INSERT INTO {{meta}} (id, jsondata) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET jsondata = excluded.jsondata

-- name: partition_cell
SELECT count(*) FROM (
    SELECT 1 FROM {{head}} WHERE qrid >= ?1 AND qrid < ?2 AND txn <= ?3
    UNION ALL
    SELECT 1 FROM {{hst}} WHERE qrid >= ?1 AND qrid < ?2 AND action <> 'DELETE'
       AND txn <= ?3 AND txn_next > ?3
    LIMIT ?4)

-- name: partition_nowhere
SELECT (SELECT count(*) FROM {{head}} WHERE qrid IS NULL AND txn <= ?1)
     + (SELECT count(*) FROM {{hst}} WHERE qrid IS NULL AND action <> 'DELETE'
           AND txn <= ?1 AND txn_next > ?1)

-- name: meta_all
SELECT jsondata FROM {{meta}} ORDER BY id LIMIT ?

-- name: meta_is_full
-- One more would be too many.
SELECT count(*) >= ? FROM {{meta}} WHERE id <> ?

-- name: meta_delete
DELETE FROM {{meta}} WHERE id = ?
