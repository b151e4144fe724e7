-- name: lowest_pin
SELECT min(txn) FROM naksha_pin WHERE ?1 IS NULL OR collection IS NULL OR collection = ?1

-- name: pinned
-- A pin by the collection's name, or a pin on all collections from a time when it still existed.
SELECT EXISTS (SELECT 1 FROM naksha_pin WHERE collection = ?1 OR (collection IS NULL AND txn < ?2))

-- name: history_too_old
SELECT n, txn_next FROM naksha_hst WHERE t = ? AND txn_next < ? ORDER BY txn_next LIMIT ?

-- name: history_delete
DELETE FROM naksha_hst WHERE n = ?

-- name: past_delete
DELETE FROM naksha_past WHERE n = ?

-- name: past_tags_delete
DELETE FROM naksha_past_tag WHERE n = ?

-- name: log_days
SELECT tx_log_days FROM naksha_storage

-- name: log_days_set
UPDATE naksha_storage SET tx_log_days = ?

-- name: first_unpublished
SELECT min(txn) FROM naksha_tx WHERE seq_number IS NULL

-- name: log_delete
DELETE FROM naksha_tx WHERE txn < ?

-- name: versions_delete
DELETE FROM naksha_version WHERE txn < ?

-- name: feature_count
SELECT count(*) FROM naksha_head WHERE t = ?

-- name: feature_sizes
SELECT max(length(CAST(jsondata AS BLOB)) + coalesce(length(CAST(geometry AS BLOB)), 4) + 12),
       max(length(CAST(jsondata AS BLOB)) + coalesce(length(geo), 0))
  FROM (SELECT jsondata, geometry, geo FROM naksha_head
         WHERE n BETWEEN ?1 << 40 AND ((?1 + 1) << 40) - 1 ORDER BY n DESC LIMIT ?2)

-- name: trash
INSERT INTO naksha_trash (t) VALUES (?)

-- name: trash_next
SELECT t FROM naksha_trash LIMIT 1

-- name: trash_rows
SELECT n FROM {{table}} WHERE n BETWEEN ?1 << 40 AND ((?1 + 1) << 40) - 1 LIMIT ?2

-- name: trash_delete
DELETE FROM {{table}} WHERE n = ?

-- name: trash_meta
DELETE FROM naksha_meta WHERE t = ?

-- name: trash_ids
DELETE FROM naksha_ids WHERE t = ?

-- name: trash_forget
DELETE FROM naksha_trash WHERE t = ?

-- name: free_pages
PRAGMA freelist_count

-- name: free_pages_cut
PRAGMA incremental_vacuum({{pages}})
