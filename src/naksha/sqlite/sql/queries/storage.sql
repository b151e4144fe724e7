-- name: connection_synchronous
-- Acknowledged writes must also survive a power failure.
PRAGMA synchronous = FULL

-- name: connection_overwrite
-- Deleted content is not overwritten with zeros: access to the file is protected by other means.
PRAGMA secure_delete = OFF

-- name: connection_cache
PRAGMA cache_size = -65536

-- name: connection_map
-- With memory-mapped I/O all connections and processes share the system's page cache instead of
-- copying pages: reads take half the time. SQLite maps at most 2 GiB.
PRAGMA mmap_size = 2147418112

-- name: writer_cache
-- Pages that do not fit into the cache are written early and read again.
PRAGMA cache_size = -262144

-- name: journal_mode
PRAGMA journal_mode

-- name: wal
PRAGMA journal_mode = WAL

-- name: application_id
PRAGMA application_id

-- name: application_id_set
PRAGMA application_id = {{value}}

-- name: schema_version
PRAGMA user_version

-- name: schema_version_set
PRAGMA user_version = {{value}}

-- name: table_count
SELECT count(*) FROM sqlite_master

-- name: storage_id
SELECT id FROM naksha_storage

-- name: storage_identity
SELECT id, number, former FROM naksha_storage

-- name: storage_insert
INSERT INTO naksha_storage (one, id, number) VALUES (1, ?, ?)

-- name: storage_fork
-- Stores the version and the row numbers up to which states and transactions keep the old identity.
UPDATE naksha_storage
   SET id = ?1, number = ?2,
       former = json_insert(former, '$[#]', json_object(
           'id', id, 'number', number, 'txn', CAST(last_txn AS TEXT),
           'version', (SELECT coalesce(max(seq_number), 0) FROM naksha_version),
           'lastI', (SELECT json_group_object(c.id, c.next_i - 1) FROM naksha_collection c)))

-- name: no_wal
-- Fails while another connection has the file open.
PRAGMA journal_mode = DELETE

-- name: begin
BEGIN IMMEDIATE

-- name: begin_reading
BEGIN

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: savepoint
SAVEPOINT one_transaction

-- name: release
RELEASE one_transaction

-- name: rollback_to
ROLLBACK TO one_transaction

-- name: managed
UPDATE naksha_shell SET managed = ?

-- name: counters
SELECT last_txn, last_ord,
       (SELECT coalesce(max(txn), 0) FROM naksha_version) AS published
  FROM naksha_storage

-- name: counters_set
UPDATE naksha_storage SET last_txn = max(last_txn, ?), last_ord = max(last_ord, ?)

-- name: collections
SELECT * FROM naksha_collection WHERE ? OR dropped_at = 0 ORDER BY id

-- name: collection
SELECT * FROM naksha_collection WHERE id = ?

-- name: collection_by_number
SELECT id FROM naksha_collection WHERE number = ? AND dropped_at = 0

-- name: collection_last
SELECT last_collection FROM naksha_storage

-- name: collection_number_set
UPDATE naksha_storage SET last_collection = max(last_collection, ?)

-- name: take_table
UPDATE naksha_storage SET last_table = last_table + 1 RETURNING last_table

-- name: next_i_set
UPDATE naksha_collection SET next_i = max(next_i, ?) WHERE number = ?

-- name: collection_insert
-- A collection name that was used before continues its numbering; earlier history is not visible.
INSERT INTO naksha_collection (id, number, txn, off_since, next_i, floor_txn, max_age, id_prefix,
                               author, optimal_partitioning, points_only, delete_at, created, t)
VALUES (?1, ?2, ?3, ?4, coalesce((SELECT next_i FROM naksha_removed WHERE id = ?1), 1),
        CASE WHEN EXISTS (SELECT 1 FROM naksha_removed WHERE id = ?1) THEN ?3 ELSE 0 END,
        ?5, ?6, ?7, ?8, ?9, ?10, ?3, ?11)

-- name: collection_change
UPDATE naksha_collection
   SET txn = ?, floor_txn = ?, off_since = ?, max_age = ?, id_prefix = ?, author = ?,
       optimal_partitioning = ?, delete_at = ?, dropped_at = ?
 WHERE id = ?

-- name: collection_next_i
UPDATE naksha_collection SET next_i = max(next_i, ?) WHERE id = ?

-- name: collection_raise_floor
UPDATE naksha_collection SET floor_txn = max(floor_txn, ?) WHERE id = ?

-- name: collection_statistics
UPDATE naksha_collection SET estimated_feature_count = ?, byte_size = ?, compressed_size = ?
 WHERE id = ?

-- name: collection_removed
INSERT INTO naksha_removed (id, next_i) VALUES (?, ?)
ON CONFLICT (id) DO UPDATE SET next_i = excluded.next_i

-- name: collection_delete
DELETE FROM naksha_collection WHERE id = ?

-- name: last_write
-- The last transaction after a given one that wrote features of a collection on main, else 0.
SELECT coalesce(max(txn), 0) FROM naksha_tx
 WHERE id = ? AND action = 'MODIFY_FEATURES' AND txn > ? AND overlay = 0

-- name: last_purge
-- The last purge: it leaves no tombstone against which the order of a creation could be checked.
SELECT coalesce(max(txn), 0) FROM naksha_tx
 WHERE id = ? AND action = 'MODIFY_FEATURES' AND txn > ? AND overlay = ? AND purged > 0

-- name: log_insert
INSERT INTO naksha_tx (overlay, ts, seq_ts, txn, ord, action, id, app_id, author, msg_text,
                       msg_json, msg_binary, created, updated, deleted, purged, west, south, east,
                       north, cells)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: due
-- Transactions that are committed, not published, and below all open ones.
SELECT txn, min(ord) AS ord, min(seq_ts) AS dated FROM naksha_tx
 WHERE seq_number IS NULL AND txn < ? GROUP BY txn ORDER BY txn

-- name: version_insert
INSERT INTO naksha_version (seq_number, txn, seq_ts, ord) VALUES (?, ?, ?, ?)

-- name: log_publish
UPDATE naksha_tx SET seq_number = ?, seq_ts = ? WHERE txn = ?

-- name: is_waiting
-- Whether there are transactions to publish, or to record the cells of.
SELECT EXISTS (SELECT 1 FROM naksha_tx WHERE seq_number IS NULL)
    OR EXISTS (SELECT 1 FROM naksha_edited_box)

-- name: unpublished
SELECT count(DISTINCT txn) FROM naksha_tx WHERE seq_number IS NULL


-- name: last_version
SELECT seq_number, txn, seq_ts FROM naksha_version ORDER BY seq_number DESC LIMIT 1

-- name: first_version
SELECT seq_number, txn, seq_ts FROM naksha_version ORDER BY seq_number LIMIT 1

-- name: version_by_seq
SELECT seq_number, txn, seq_ts FROM naksha_version WHERE seq_number = ?

-- name: version_by_txn
SELECT seq_number, txn, seq_ts FROM naksha_version WHERE txn = ?

-- name: version_from_txn
SELECT seq_number, txn, seq_ts FROM naksha_version WHERE txn >= ? ORDER BY txn LIMIT 1

-- name: version_by_time
SELECT seq_number, txn, seq_ts FROM naksha_version WHERE seq_ts <= ?
 ORDER BY seq_ts DESC, seq_number DESC LIMIT 1

-- name: guard_drop
DROP TRIGGER IF EXISTS {{trigger}}

-- name: guard
-- Refuses direct writes to tables that only the storage may write.
CREATE TRIGGER {{trigger}} BEFORE {{operation}} ON {{table}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    SELECT RAISE(ABORT, {{message}});
END
