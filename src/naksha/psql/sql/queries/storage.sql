-- name: storage_info
SELECT id, number FROM naksha_storage

-- name: storage_identity
SELECT id, number, former FROM naksha_storage

-- name: database_name
SELECT current_database()

-- name: storage_fork
SELECT naksha_storage_fork($1, $2)

-- name: storage_insert
SELECT naksha_storage_name($1, $2)

-- name: schema_create
CREATE SCHEMA IF NOT EXISTS {{schema}}

-- name: schema_lock
-- One installer or migrator at a time; the key is the schema's name.
SELECT pg_advisory_xact_lock(hashtext('naksha install'), hashtext($1))

-- name: schema_installed
SELECT to_regclass('naksha_migration') IS NOT NULL

-- name: schema_installed_in
SELECT to_regclass(format('%I.naksha_migration', $1::text)) IS NOT NULL

-- name: schema_access
-- No row if the schema holds no storage.
SELECT pg_get_userbyid(c.relowner)::text AS owner,
       pg_has_role(c.relowner, 'USAGE') AS is_owner,
       has_table_privilege(c.oid, 'INSERT') AND NOT pg_is_in_recovery()
           AND current_setting('transaction_read_only') = 'off' AS may_write
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = $1 AND c.relname = 'naksha_tx'

-- name: table_being_copied
-- On a logical replica, until the first copy of all tables is done.
SELECT c.relname FROM pg_subscription_rel r JOIN pg_class c ON c.oid = r.srrelid
 WHERE r.srsubstate <> 'r' AND c.relnamespace = quote_ident(current_schema())::regnamespace
 ORDER BY c.relname LIMIT 1

-- name: postgis_schema
SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'postgis'

-- name: postgis_create
CREATE EXTENSION IF NOT EXISTS postgis

-- name: postgis_load
SELECT ST_MakePoint(0, 0)

-- name: settings_set
SELECT pg_backend_pid(), {{settings}}

-- name: setting_set
set_config($1::text, $2::text, false)

-- name: backend_is
SELECT WHERE pg_backend_pid() = $1::int

-- name: idle_end_set
-- The server ends the session when it is idle for $2 ms; $1 marks it.
SELECT set_config('naksha.pooler_probe', $1::text, false),
       set_config('idle_session_timeout', $2::text, false)

-- name: idle_end_is_set
SELECT WHERE current_setting('naksha.pooler_probe', true) = $1::text

-- name: search_path_set
SELECT set_config('search_path', $1, $2)

-- name: tx_start
SELECT naksha_tx_start($1, $2, naksha_time_of($3), $4)

-- name: tx_message
SELECT naksha_logged_txn() AS logged FROM naksha_tx_message($1, $2, $3::jsonb, $4)

-- name: close_gate
SELECT naksha_close_gate($1)

-- name: collections
-- Those that existed at transaction $2, as they are now.
SELECT naksha_collection_info(c) FROM naksha_collection c
 WHERE ($1 OR c.dropped_at = 0) AND c.overlay = 0 AND c.created_txn <= $2 ORDER BY c.id

-- name: collection
SELECT naksha_collection_info(c) AS info, c.txn FROM naksha_collection c
 WHERE c.id = $1 AND ($2 OR c.dropped_at = 0) AND c.overlay = 0 AND c.created_txn <= $3

-- name: collection_by_number
SELECT c.id FROM naksha_collection c WHERE c.number = $1

-- name: collection_create
SELECT info, naksha_logged_txn() AS logged FROM naksha_collection_create($1, $2::jsonb) AS info

-- name: collection_change
SELECT info, naksha_logged_txn() AS logged FROM naksha_collection_change($1, $2::jsonb) AS info

-- name: collection_drop
SELECT info, naksha_logged_txn() AS logged FROM naksha_collection_drop($1, $2) AS info

-- name: collection_restore
SELECT info, naksha_logged_txn() AS logged FROM naksha_collection_restore($1) AS info

-- name: write
SELECT w.*, naksha_logged_txn() AS logged
  FROM naksha_write($1, $2, $3, $4, $6, $7, $8, $9, $10, $5, $11, $12, $13, $14, $15) AS w

-- name: write_first
SELECT w.*, naksha_logged_txn() AS logged
  FROM naksha_write_first($1, $2, naksha_time_of($3), $4, $5, $6, $7, $8, $9, $10, $11, $12, $14,
                          $15, $16, $17, $18, $13, $19, $20, $21, $22, $23) AS w

-- name: purge
SELECT w.*, naksha_logged_txn() AS logged FROM naksha_purge($1, $2, $3, $4) AS w

-- name: publish
SELECT * FROM naksha_publish_round($1, $2)

-- name: publication
SELECT * FROM naksha_publication()

-- name: lock_class
SELECT naksha_lock_class()

-- name: lock_holders
-- A prepared transaction has the pid 0.
SELECT string_agg(coalesce(naksha_session(b.pid), 'a prepared transaction'), '; ')
  FROM (SELECT DISTINCT unnest(pg_blocking_pids($1)) AS pid) AS b

-- name: try_lock
SELECT pg_try_advisory_lock(naksha_lock_class(), $1)

-- name: unlock
SELECT pg_advisory_unlock(naksha_lock_class(), $1)

-- name: last_version
SELECT seq_number, txn, naksha_epoch_ms(seq_ts) AS ms FROM naksha_version
 ORDER BY seq_number DESC LIMIT 1

-- name: first_version
SELECT seq_number, txn, naksha_epoch_ms(seq_ts) AS ms FROM naksha_version
 ORDER BY seq_number LIMIT 1

-- name: version_by_txn
SELECT seq_number, txn, naksha_epoch_ms(seq_ts) AS ms FROM naksha_version WHERE txn = $1

-- name: versions
-- The version that a condition selects, the first and the last one.
(SELECT 'found' AS kind, seq_number, txn, naksha_epoch_ms(seq_ts) AS ms FROM naksha_version
  WHERE {{found}})
UNION ALL
(SELECT 'first', seq_number, txn, naksha_epoch_ms(seq_ts) FROM naksha_version
  ORDER BY seq_number LIMIT 1)
UNION ALL
(SELECT 'last', seq_number, txn, naksha_epoch_ms(seq_ts) FROM naksha_version
  ORDER BY seq_number DESC LIMIT 1)

-- name: version_of_seq
seq_number = $1

-- name: version_of_txn
txn = $1

-- name: version_of_time
seq_ts < naksha_time_of($1::int8 + 1) ORDER BY seq_ts DESC, seq_number DESC LIMIT 1

-- name: version_from_txn
-- The oldest published version that is not before a transaction.
SELECT seq_number, txn, naksha_epoch_ms(seq_ts) AS ms FROM naksha_version
 WHERE txn >= $1 ORDER BY txn LIMIT 1

-- name: history_floors
SELECT c.id, naksha_name(c) AS name, naksha_floor(c.id) AS floor
  FROM naksha_collection c WHERE c.id = ANY($1)

-- name: transaction
SELECT t.txn, t.seq_number, t.action, t.id, t.app_id, t.author, t.overlay, t.created, t.updated,
       t.deleted, t.purged, t.msg_text, t.msg_json, t.msg_binary,
       naksha_epoch_ms(t.ts) AS ts_ms, naksha_epoch_ms(t.seq_ts) AS seq_ms,
       ST_XMin(t.bbox) AS west, ST_YMin(t.bbox) AS south, ST_XMax(t.bbox) AS east,
       ST_YMax(t.bbox) AS north
  FROM naksha_tx t WHERE t.txn = $1 ORDER BY t.i

-- name: keep_log
SELECT naksha_storage_keep_log($1)

-- name: pin
SELECT naksha_pin_set($1, $2, $3, $4)

-- name: unpin
SELECT naksha_pin_remove($1)

-- name: keep
SELECT naksha_keep($1, $2, $3::jsonb, $4)

-- name: forget
SELECT naksha_forget($1, $2, $3)

-- name: kept
SELECT kind, id, value, revision FROM naksha_kept WHERE kind = $1 AND id = $2

-- name: all_kept
SELECT kind, id, value, revision FROM naksha_kept
 WHERE kind = $1 AND starts_with(id, $2) ORDER BY id

-- name: kept_between
-- The ids that begin with a prefix, as a range of the index.
SELECT kind, id, value, revision FROM naksha_kept
 WHERE kind = $1 AND id >= $2 AND id < $3 ORDER BY id

-- name: tx_branch
SELECT naksha_tx_branch($1, $2)

-- name: overlay_new
SELECT naksha_overlay_new()

-- name: overlay_freeze
SELECT naksha_overlay_freeze($1)

-- name: overlay_drop
SELECT naksha_overlay_drop($1)

-- name: overlay_tables
-- The existing ones of the requested overlays, with their tables of a collection, if any.
SELECT o.number AS overlay, h.id AS table
  FROM naksha_overlay o LEFT JOIN naksha_collection h ON h.base = $1 AND h.overlay = o.number
 WHERE o.number = ANY($2)

-- name: overlay_prepare
SELECT naksha_overlay_prepare($1, $2, $3)

-- name: overlay_state
SELECT id, feature FROM naksha_overlay_state($1, $2, $3)

-- name: migrations_done
SELECT name FROM naksha_migration

-- name: migrations_record
SELECT naksha_migration_done($1, $2)

-- name: lock_rows
SELECT naksha_lock_rows(naksha_open($1, $4), $2, $3)
