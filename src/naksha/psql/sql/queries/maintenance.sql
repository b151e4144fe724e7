-- Maintenance; see naksha.psql.maintenance.rounds.

-- name: maintain_now
SELECT coalesce($1, naksha_epoch_ms(clock_timestamp()))

-- name: maintain_timeouts
-- Limits every statement of a round, except the building of merged tables.
SELECT set_config('statement_timeout', $1, false)

-- name: maintain_collections
-- All collections, and which steps may be due for each. A step is a transaction of its own that
-- takes locks, and mostly there is nothing to do. `written` changes when HEAD was written to; it is
-- null where the server does not count that.
SELECT c.id, c.dropped_at, c.max_age, h.expires,
       h.merges OR c.id || '_hst' = ANY(n.unmerged) AS merges,
       h.prepares AND c.off_since IS NULL AS prepares,
       CASE WHEN current_setting('track_counts')::bool THEN w.written END AS written
  FROM (SELECT naksha_settled() AS settled, naksha_day_txn(naksha_utc_day($1)) AS today,
               naksha_day_txn(naksha_utc_day($1) + 1) AS tomorrow,
               ARRAY(SELECT DISTINCT m.parent[1]
                       FROM pg_class k, regexp_match(k.relname, '^(.+_hst)_new_') AS m(parent)
                      WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                        AND k.relkind = 'r' AND NOT k.relispartition) AS unmerged OFFSET 0) AS n,
       naksha_collection c,
       LATERAL (SELECT count(*) FILTER (WHERE p.hi <= n.settled) > 1 AS merges,
                       count(*) FILTER (WHERE p.hi <= naksha_cutoff($1, c.max_age)) > 0 AS expires,
                       count(*) FILTER (WHERE p.lo <= n.today AND n.today < p.hi) > 0
                       AND count(*) FILTER (WHERE p.lo <= n.tomorrow AND n.tomorrow < p.hi) = 0
                       AS prepares
                  FROM naksha_partitions(c.id || '_hst') p) AS h,
       LATERAL (SELECT concat_ws(' ', sum(k.oid::int8), sum(k.reltuples),
                                 sum(pg_stat_get_tuples_inserted(k.oid)),
                                 sum(pg_stat_get_tuples_updated(k.oid)),
                                 sum(pg_stat_get_tuples_deleted(k.oid))) AS written
                  FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
                 WHERE i.inhparent = to_regclass(quote_ident(c.id))) AS w
 ORDER BY c.id

-- name: maintain_due
-- What a round would remove now. Nothing is locked, so a pin that is set meanwhile may keep some.
SELECT 'scheduled drop' AS what, 'the collection ' || c.id AS subject
  FROM naksha_collection c
 WHERE c.overlay = 0 AND c.dropped_at = 0 AND c.delete_at BETWEEN 1 AND $1
 UNION ALL
SELECT 'removal', CASE c.overlay WHEN 0 THEN 'the collection ' ELSE 'the dropped branch tables ' END
                  || c.id
  FROM naksha_collection c
 WHERE c.dropped_at <> 0 AND c.delete_at <= $1
   AND NOT (c.overlay = 0 AND EXISTS (
            SELECT FROM naksha_pin p WHERE p.collection = c.id
                OR (p.collection IS NULL AND p.txn < c.txn)))
 UNION ALL
SELECT 'expiry', p.name
  FROM naksha_collection c, naksha_partitions(c.id || '_hst') p
 WHERE c.dropped_at = 0 AND p.hi <= naksha_cutoff($1, c.max_age)
   AND p.lo <= coalesce((SELECT min(k.txn) FROM naksha_pin k
                          WHERE k.collection IS NULL OR k.collection = naksha_name(c)), p.lo)
 UNION ALL
SELECT 'expiry', p.name
  FROM naksha_storage s, naksha_partitions('naksha_tx') p
 WHERE p.hi <= least(naksha_settled(), naksha_cutoff($1, s.tx_log_days),
                     (SELECT min(k.txn) FROM naksha_pin k),
                     (SELECT max(v.txn) FROM naksha_version v))
 UNION ALL
SELECT 'removal', count(*) || ' staged parts that were never applied'
  FROM naksha_staged s WHERE s.until < to_timestamp($1 / 1000.0) HAVING count(*) > 0

-- name: maintain_vitals
-- The history with most partitions, and the oldest pin with the day of its version. A pin of 0
-- keeps everything and has no day.
SELECT h.id AS partitioned, h.partitions::int, k.name AS pin,
       CASE WHEN k.txn > 0
            THEN naksha_epoch_ms(naksha_txn_day(k.txn)::timestamp AT TIME ZONE 'UTC')
        END AS pin_ms
  FROM (SELECT 1) AS one
  LEFT JOIN (SELECT c.id, count(*) AS partitions
               FROM naksha_collection c JOIN pg_inherits i
                 ON i.inhparent = to_regclass(quote_ident(c.id || '_hst'))
              WHERE c.dropped_at = 0
              GROUP BY c.id ORDER BY count(*) DESC LIMIT 1) AS h ON true
  LEFT JOIN (SELECT p.name, p.txn FROM naksha_pin p ORDER BY p.txn LIMIT 1) AS k ON true

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

-- name: fold_cells
SELECT naksha_fold_cells($1)

-- name: sweep_cells
SELECT naksha_sweep_cells($1)

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
