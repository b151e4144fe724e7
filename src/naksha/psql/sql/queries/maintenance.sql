-- Maintenance; see naksha.psql.maintenance.rounds.

-- name: maintain_now
SELECT coalesce($1, naksha_epoch_ms(clock_timestamp()))

-- name: maintain_timeouts
-- Bounds every statement of a round, except the making of merged tables.
SELECT set_config('statement_timeout', $1, false)

-- name: maintain_collections
SELECT id, dropped_at, max_age, off_since IS NULL AS history FROM naksha_collection ORDER BY id

-- name: log_keep_days
SELECT tx_log_days FROM naksha_storage

-- name: pending_detaches
SELECT parent, part FROM naksha_pending_detaches()

-- name: detach_finalize
ALTER TABLE {{parent}} DETACH PARTITION {{part}} FINALIZE

-- name: detach
ALTER TABLE {{parent}} DETACH PARTITION {{part}} CONCURRENTLY

-- name: drop_detached
DROP TABLE IF EXISTS {{part}}

-- name: sweep
SELECT naksha_sweep()

-- name: sweep_merges
SELECT naksha_sweep_merges($1)

-- name: destroy_due
SELECT naksha_destroy_due($1, $2)

-- name: expire_next
SELECT part, how FROM naksha_expire_next($1, $2)

-- name: expire_before
SELECT part, how FROM naksha_expire_before($1, $2)

-- name: log_expire_next
SELECT naksha_log_expire_next($1)

-- name: merge_next
SELECT label, from_day, to_day FROM naksha_merge_next($1, $2)

-- name: merge_build
SELECT naksha_merge_build($1, $2, $3, $4)

-- name: merge_vacuum
-- History never changes: freeze it now, while it is in memory, instead of rewriting it later.
VACUUM (FREEZE, ANALYZE) {{part}}

-- name: running
SELECT naksha_running($1)

-- name: merge_swap
SELECT naksha_merge_swap($1, $2, $3, $4)

-- name: refresh_statistics
SELECT naksha_refresh_statistics($1)

-- name: prepare_tomorrow
SELECT naksha_prepare_tomorrow($1, $2)

-- name: prepare_log
SELECT naksha_prepare_log($1)

-- name: prepare_history
SELECT naksha_prepare_history($1, $2, $3)

-- name: history_ready
SELECT naksha_history_ready($1, $2, $3)

-- name: histories_in_use
SELECT id || '_hst' AS parent FROM naksha_collection
 WHERE dropped_at = 0 AND off_since IS NULL ORDER BY id

-- name: tables_to_index
SELECT tbl, kind, points_only FROM naksha_tables_to_index($1)

-- name: index_table
SELECT naksha_index_table($1, $2, $3)

-- name: collections_to_grow
SELECT * FROM naksha_collections_to_grow($1)

-- name: grow_begin
SELECT c.partitions FROM naksha_grow_begin($1) AS c

-- name: grow_fill
SELECT naksha_grow_fill($1, $2)

-- name: grow_older
SELECT naksha_grow_older($1, $2)

-- name: grow_swap
SELECT naksha_grow_swap($1, $2)

-- name: points_only
SELECT points_only FROM naksha_collection WHERE id = $1

-- name: analyze
ANALYZE {{table}}
