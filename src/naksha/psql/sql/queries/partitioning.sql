-- Optimal partitioning; see naksha.psql.maintenance.partitioning.

-- name: partition_plan
-- A cell is read through the index on qrid, entry by entry, and no further than its limit: a
-- sequential scan would parse every feature, a bitmap would read the whole cell first, and a plan
-- for a large cell would use the index on txn and parse every feature as well.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true)

-- name: partition_cell
-- The features of a cell, [$1, $2) as the pattern operators compare, at version $3; at most $4.
-- `known` is false on a replica that has not replayed the version yet.
SELECT EXISTS (SELECT FROM naksha_version WHERE txn = $3) AS known,
       (SELECT count(*) FROM (
            SELECT FROM {{head}}
             WHERE naksha_xyz(jsondata)->>'qrid' ~>=~ $1::text
               AND naksha_xyz(jsondata)->>'qrid' ~<~ $2::text
               AND naksha_xyz_txn(jsondata) <= $3
            UNION ALL
            SELECT FROM {{hst}}
             WHERE naksha_xyz(jsondata)->>'qrid' ~>=~ $1::text
               AND naksha_xyz(jsondata)->>'qrid' ~<~ $2::text
               AND naksha_xyz_txn(jsondata) <= $3 AND naksha_xyz_txn_next(jsondata) > $3
               AND naksha_xyz_action(jsondata) <> 'DELETE'
            LIMIT $4::int8) AS cell) AS n

-- name: partition_nowhere
-- The features without geometry at version $1. The condition on the transaction is written such
-- that no index matches it: the planner would use that index if few features have no geometry, and
-- parse all the others.
SELECT EXISTS (SELECT FROM naksha_version WHERE txn = $1) AS known,
       (SELECT count(*) FROM (
            SELECT FROM {{head}}
             WHERE naksha_xyz(jsondata)->>'qrid' IS NULL
               AND coalesce(naksha_xyz_txn(jsondata), 0) <= $1
            UNION ALL
            SELECT FROM {{hst}}
             WHERE naksha_xyz(jsondata)->>'qrid' IS NULL
               AND coalesce(naksha_xyz_txn(jsondata), 0) <= $1
               AND naksha_xyz_txn_next(jsondata) > $1
               AND naksha_xyz_action(jsondata) <> 'DELETE') AS cell) AS n

-- name: partition_byte_size
-- The size of the largest feature of a sample. Leaves are filled by a hash, so any rows will do.
SELECT coalesce(max(octet_length(naksha_feature(geo, jsondata))), 1)
  FROM (SELECT geo, jsondata FROM {{head}} LIMIT $1) AS sample

-- name: partition_last_write
-- The last published transaction that wrote features of a collection, and the first version that is
-- still in the log: a result computed before that may have missed a write.
SELECT coalesce((SELECT max(t.txn) FROM naksha_tx t WHERE t.id = $1
                    AND t.action = 'MODIFY_FEATURES' AND t.overlay = 0
                    AND t.seq_number IS NOT NULL), 0) AS txn,
       coalesce((SELECT txn FROM naksha_version ORDER BY seq_number LIMIT 1), 0) AS first_txn

-- name: partitioned_collections
SELECT id FROM naksha_collection WHERE optimal_partitioning AND dropped_at = 0 ORDER BY id

-- name: meta_get
SELECT jsondata FROM {{meta}} WHERE i = hashtextextended($1, 0)

-- name: meta_put
SELECT naksha_meta_put($1, $2, $3)

-- name: meta_all
SELECT jsondata FROM {{meta}} ORDER BY jsondata->>'id' COLLATE "C" LIMIT $1

-- name: meta_is_full
-- One more would be too many.
SELECT count(*) >= $2 FROM {{meta}} WHERE i <> hashtextextended($1, 0)

-- name: meta_delete
SELECT naksha_meta_delete($1, $2)
