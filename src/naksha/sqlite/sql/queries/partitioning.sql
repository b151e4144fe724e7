-- name: meta_get
SELECT jsondata FROM naksha_meta WHERE t = ? AND id = ?

-- name: meta_put
INSERT INTO naksha_meta (t, id, jsondata) VALUES (?, ?, ?)
ON CONFLICT (t, id) DO UPDATE SET jsondata = excluded.jsondata

-- name: partition_cell
SELECT count(*) FROM (
    SELECT 1 FROM naksha_head WHERE t = ?1 AND qrid >= ?2 AND qrid < ?3 AND +txn <= ?4
    UNION ALL
    SELECT 1 FROM naksha_hst WHERE t = ?1 AND qrid >= ?2 AND qrid < ?3 AND +action <> 'DELETE'
       AND +txn <= ?4 AND +txn_next > ?4
    LIMIT ?5)

-- name: partition_nowhere
SELECT (SELECT count(*) FROM naksha_head WHERE t = ?1 AND qrid IS NULL AND +txn <= ?2)
     + (SELECT count(*) FROM naksha_hst WHERE t = ?1 AND qrid IS NULL AND action <> 'DELETE'
           AND +txn <= ?2 AND txn_next > ?2)

-- name: meta_all
SELECT jsondata FROM naksha_meta WHERE t = ? ORDER BY id LIMIT ?

-- name: meta_is_full
-- Whether a new meta feature would exceed the maximum.
SELECT count(*) >= ?2 FROM naksha_meta WHERE t = ?1 AND id <> ?3

-- name: meta_delete
DELETE FROM naksha_meta WHERE t = ? AND id = ?
