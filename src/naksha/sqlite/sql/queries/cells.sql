-- Tile cells: what each transaction changed, and the last transaction of each cell.

-- name: cell_log_end
-- The last version, and whether every transaction is published.
SELECT coalesce(max(v.seq_number), 0), coalesce(max(v.txn), 0),
       NOT EXISTS (SELECT 1 FROM naksha_tx WHERE seq_number IS NULL)
  FROM (SELECT seq_number, txn FROM naksha_version ORDER BY seq_number DESC LIMIT 1) AS v

-- name: cell_log
SELECT txn, id, overlay, coalesce(cells, '[1]') FROM naksha_tx
 WHERE txn > ? AND txn <= ? AND action <> 'MESSAGE' AND cells IS NOT '[]'
 ORDER BY txn LIMIT ?

-- name: cells_folded
-- Input are cells, of which those inside count as well, and larger cells that contain them.
SELECT coalesce(max(txn), 0)
  FROM (SELECT max(txn, inside_txn) AS txn FROM naksha_cell
         WHERE collection = ?1 AND overlay = ?2 AND cell IN (SELECT value FROM json_each(?3))
        UNION ALL
        SELECT txn FROM naksha_cell
         WHERE collection = ?1 AND overlay = ?2 AND cell IN (SELECT value FROM json_each(?4)))

-- name: cells_unfolded
SELECT txn, coalesce(cells, '[1]') FROM naksha_tx
 WHERE id = ? AND action = ? AND overlay = ? AND seq_number IS NOT NULL
   AND txn > (SELECT cells_txn FROM naksha_storage)
 ORDER BY txn DESC

-- name: cells_due
-- Published transactions that are not folded yet, each row with its size in the log.
SELECT t.txn, 20 + coalesce(length(t.cells), 0)
  FROM naksha_tx t
 WHERE t.txn > (SELECT cells_txn FROM naksha_storage)
   AND t.txn <= (SELECT coalesce(max(txn), 0) FROM naksha_version)
 ORDER BY t.txn

-- name: cells_fold
-- Each cell is folded into its own row, and into those of all cells that contain it.
INSERT INTO naksha_cell (collection, overlay, cell, txn, inside_txn)
SELECT t.id, t.overlay, c.value >> 2 * u.value, max(CASE u.value WHEN 0 THEN t.txn ELSE 0 END),
       max(CASE u.value WHEN 0 THEN 0 ELSE t.txn END)
  FROM naksha_storage o JOIN naksha_tx t ON t.txn > o.cells_txn AND t.txn <= ?,
       json_each(coalesce(t.cells, '[1]')) c, json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12]') u
 WHERE t.action <> 'MESSAGE' AND c.value >> 2 * u.value > 0
 GROUP BY 1, 2, 3
ON CONFLICT (collection, overlay, cell) DO UPDATE
   SET txn = max(txn, excluded.txn), inside_txn = max(inside_txn, excluded.inside_txn)

-- name: cells_folded_set
UPDATE naksha_storage SET cells_txn = ?

-- name: cells_folded_txn
SELECT cells_txn FROM naksha_storage

-- name: cells_next
-- The next collection and overlay that have cells, and whether one of them does not exist any more.
SELECT collection, overlay,
       collection NOT IN (SELECT id FROM naksha_collection)
       OR (overlay <> 0 AND overlay NOT IN (SELECT number FROM naksha_overlay))
  FROM naksha_cell WHERE (collection, overlay) > (?, ?) ORDER BY 1, 2 LIMIT 1

-- name: cells_forget
DELETE FROM naksha_cell
 WHERE collection = ?1 AND overlay = ?2
   AND cell IN (SELECT cell FROM naksha_cell WHERE collection = ?1 AND overlay = ?2 LIMIT ?3)

-- name: data_version
-- Changes whenever another connection, of any process, commits to the file.
PRAGMA data_version
