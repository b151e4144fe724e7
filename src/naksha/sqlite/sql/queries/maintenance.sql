-- name: lowest_pin
SELECT min(txn) FROM naksha_pin WHERE ?1 IS NULL OR collection IS NULL OR collection = ?1

-- name: pinned
-- By its name, or by a pin on all collections from a time when it was still there.
SELECT EXISTS (SELECT 1 FROM naksha_pin WHERE collection = ?1 OR (collection IS NULL AND txn < ?2))

-- name: history_too_old
SELECT i, txn_next FROM {{hst}} WHERE txn_next < ? ORDER BY txn_next LIMIT ?

-- name: history_delete
DELETE FROM {{hst}} WHERE i = ?

-- name: past_delete
DELETE FROM {{past}} WHERE i = ?

-- name: past_tags_delete
DELETE FROM {{past_tag}} WHERE i = ?

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
SELECT count(*) FROM {{head}}

-- name: feature_sizes
SELECT max(length(CAST(jsondata AS BLOB)) + coalesce(length(CAST(geometry AS BLOB)), 4) + 12),
       max(length(CAST(jsondata AS BLOB)) + coalesce(length(geo), 0))
  FROM (SELECT jsondata, geometry, geo FROM {{head}} ORDER BY n DESC LIMIT ?)
