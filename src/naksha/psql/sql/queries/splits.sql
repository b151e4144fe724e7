-- Bulk reads; `naksha.psql.bulk.splits` combines the fragments.

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
SELECT {{columns}}
  FROM (SELECT geo, jsondata, naksha_xyz(jsondata) AS xyz FROM {{table}}
         WHERE {{conditions}} OFFSET 0) AS s

-- name: column_id
s.jsondata->>'id' AS id

-- name: column_geometry
-- Null for types that neither GeoJSON nor readers of WKB support.
CASE WHEN naksha_is_readable(s.geo) THEN ST_AsBinary(naksha_geo_out(s.geo, s.jsondata), 'NDR') END
    AS geometry

-- name: column_feature
naksha_json_out(s.jsondata)::text AS feature

-- name: column_feature_at
-- As it was at the version; see naksha_feature_at.
CASE WHEN (s.xyz->>'txn_next')::int8 <= {{at}} THEN naksha_json_out(s.jsondata)::text
     ELSE naksha_text_open(s.jsondata) END AS feature

-- name: column_properties
((s.jsondata->'properties') - '@ns:com:here:xyz')::text AS properties

-- name: column_members
nullif(s.jsondata - ARRAY['id', 'type', 'properties', 'naksha:3d'], '{}')::text AS members

-- name: column_uuid
s.xyz->>'uuid' AS uuid

-- name: column_puuid
s.xyz->>'puuid' AS puuid

-- name: column_muuid
s.xyz->>'muuid' AS muuid

-- name: column_txn
(s.xyz->>'txn')::int8 AS txn

-- name: column_txn_next
(s.xyz->>'txn_next')::int8 AS txn_next

-- name: column_txn_next_at
CASE WHEN (s.xyz->>'txn_next')::int8 <= {{at}} THEN (s.xyz->>'txn_next')::int8
     ELSE 0 END AS txn_next

-- name: column_seq_number
(SELECT v.seq_number FROM naksha_version AS v WHERE v.txn = (s.xyz->>'txn')::int8) AS seq_number

-- name: column_version
(s.xyz->>'version')::int8 AS version

-- name: column_action
s.xyz->>'action' AS action

-- name: column_author
s.xyz->>'author' AS author

-- name: column_app_id
s.xyz->>'appId' AS app_id

-- name: column_created_at
(s.xyz->>'createdAt')::int8 AS created_at

-- name: column_updated_at
(s.xyz->>'updatedAt')::int8 AS updated_at

-- name: column_rtcts
(s.xyz->>'rtcts')::int8 AS rtcts

-- name: column_rtuts
(s.xyz->>'rtuts')::int8 AS rtuts

-- name: column_tags
CASE WHEN s.xyz->'tags' = '[]' THEN '{}'::text[]
     ELSE ARRAY(SELECT jsonb_array_elements_text(s.xyz->'tags')) END AS tags

-- name: column_crid
s.xyz->>'crid' AS crid

-- name: column_qrid
s.xyz->>'qrid' AS qrid

-- name: column_mrid
s.xyz->>'mrid' AS mrid

-- name: column_west
ST_XMin(s.geo) AS west

-- name: column_south
ST_YMin(s.geo) AS south

-- name: column_east
ST_XMax(s.geo) AS east

-- name: column_north
ST_YMax(s.geo) AS north

-- name: split_past
naksha_xyz_txn(jsondata) <= {{at}} AND naksha_xyz_txn_next(jsondata) > {{after}}

-- name: split_until
naksha_xyz_txn_next(jsondata) <= {{until}}

-- name: split_leaves
substring(md5(jsondata->>'id'), 1, 1) = ANY({{leaves}})

-- name: history_sizes
-- Partitions of a history that end after a transaction, oldest first. They only determine where to
-- cut, so it does not matter if they are merged meanwhile.
SELECT b.bounds[2]::int8 AS until, coalesce(pg_table_size(i.inhrelid), 0) AS bytes
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
       regexp_match(pg_get_expr(c.relpartbound, c.oid), '(\d+)\D+(\d+)') AS b(bounds)
 WHERE i.inhparent = to_regclass($1) AND b.bounds[2]::int8 > $2 ORDER BY 1

-- name: tables_size
-- Bytes of tables with all their partitions; a missing one has none.
SELECT coalesce(sum(pg_table_size(part)), 0)::int8
  FROM unnest($1::text[]) AS t(name), LATERAL (
       SELECT to_regclass(t.name) AS part
       UNION SELECT relid FROM pg_partition_tree(to_regclass(t.name))) AS parts

-- name: version_replayed
-- Whether a replica knows the version, and with it all transactions up to it.
SELECT coalesce(max(txn), 0) >= $1 FROM naksha_version

-- name: is_replica
SELECT pg_is_in_recovery()
