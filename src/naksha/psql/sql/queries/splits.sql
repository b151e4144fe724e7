-- Bulk reads; `naksha.psql.splits` puts the fragments together.

-- name: split_begin
-- The snapshot is taken by the first query, after the locks: a partition that was attached before
-- the snapshot is then in the plan, and none of those in the plan can be replaced by a merged one.
-- (Under READ COMMITTED a query is planned before its snapshot is taken.)
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY

-- name: split_path
-- A list of quoted identifiers. No SELECT here: it would take the snapshot.
SET LOCAL search_path TO {{path}}

-- name: split_lock
LOCK TABLE {{tables}} IN ACCESS SHARE MODE

-- name: split_source
SELECT s.jsondata->>'id' AS id,
       ST_AsBinary(naksha_geo_out(s.geo, s.jsondata), 'NDR') AS geometry,
       {{feature}} AS feature, s.xyz->>'uuid' AS uuid, (s.xyz->>'txn')::int8 AS txn,
       (s.xyz->>'version')::int8 AS version, s.xyz->>'action' AS action,
       s.xyz->>'author' AS author, s.xyz->>'appId' AS app_id,
       (s.xyz->>'createdAt')::int8 AS created_at, (s.xyz->>'updatedAt')::int8 AS updated_at,
       s.xyz->>'qrid' AS qrid, ST_XMin(s.geo) AS west, ST_YMin(s.geo) AS south,
       ST_XMax(s.geo) AS east, ST_YMax(s.geo) AS north
  FROM (SELECT geo, jsondata, naksha_xyz(jsondata) AS xyz FROM {{table}}
         WHERE {{conditions}} OFFSET 0) AS s

-- name: split_feature
naksha_json_out(s.jsondata)::text

-- name: split_feature_at
-- As it was at the version; see naksha_feature_at.
CASE WHEN (s.xyz->>'txn_next')::int8 <= {{at}} THEN naksha_json_out(s.jsondata)::text
     ELSE replace(naksha_json_out(s.jsondata)::text, '"txn_next": "' || (s.xyz->>'txn_next') || '"',
                  '"txn_next": "0"') END

-- name: split_current
naksha_xyz_txn(jsondata) <= {{at}}

-- name: split_past
naksha_xyz_txn(jsondata) <= {{at}} AND naksha_xyz_txn_next(jsondata) > {{after}}

-- name: split_until
naksha_xyz_txn_next(jsondata) <= {{until}}

-- name: split_live
naksha_xyz_action(jsondata) <> 'DELETE'

-- name: split_dead
naksha_xyz_action(jsondata) = 'DELETE'

-- name: split_visible
naksha_xyz_txn(jsondata) < naksha_xyz_txn_next(jsondata)

-- name: split_leaves
substring(md5(jsondata->>'id'), 1, 1) = ANY({{leaves}})

-- name: history_sizes
-- Partitions of a history that end after a transaction, oldest first. Only where to cut is taken
-- from here, so it does not matter when they are merged meanwhile.
SELECT b.bounds[2]::int8 AS until, coalesce(pg_table_size(i.inhrelid), 0) AS bytes
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
       regexp_match(pg_get_expr(c.relpartbound, c.oid), '(\d+)\D+(\d+)') AS b(bounds)
 WHERE i.inhparent = to_regclass($1) AND b.bounds[2]::int8 > $2 ORDER BY 1

-- name: table_size
SELECT coalesce(pg_table_size(to_regclass($1)), 0)

-- name: version_replayed
-- Whether a replica knows the version, and with it all transactions up to it.
SELECT coalesce(max(txn), 0) >= $1 FROM naksha_version

-- name: is_replica
SELECT pg_is_in_recovery()
