-- Statistics of a collection; see naksha.psql.read.statistics.

-- name: select_statistics
-- All in one pass: a feature counts for the type of its geometry, for each key of its properties
-- and for each of its tags. Only the most frequent ones of each kind are returned.
SELECT k.kind, k.key, k.count, k.bytes, ST_XMin(k.box) AS west, ST_YMin(k.box) AS south,
       ST_XMax(k.box) AS east, ST_YMax(k.box) AS north
  FROM (SELECT f.kind, f.key, count(*) AS count, sum(f.bytes)::int8 AS bytes,
               ST_Extent(f.geo) AS box,
               row_number() OVER (PARTITION BY f.kind
                                  ORDER BY count(*) DESC, f.key COLLATE "C") AS place
          FROM ({{sources}}) AS s, LATERAL (
               SELECT 'type' AS kind, coalesce(substr(ST_GeometryType(s.geo), 4), '') AS key,
                      octet_length(naksha_geo_json(s.geo, s.jsondata)) + octet_length({{document}})
                      + 12 AS bytes, s.geo
               UNION ALL
               SELECT 'property', p.key, NULL, NULL
                 FROM jsonb_object_keys(s.jsondata->'properties') AS p(key)
                WHERE p.key <> '@ns:com:here:xyz'
               UNION ALL
               SELECT 'tag', t.tag, NULL, NULL
                 FROM jsonb_array_elements_text(naksha_xyz(s.jsondata)->'tags') AS t(tag)) AS f
         GROUP BY f.kind, f.key) AS k
 WHERE k.place <= {{most}} ORDER BY k.kind, k.place

-- name: source_sample
-- A sample of the pages, a different one each time: the same ones would also be the same in every
-- leaf.
SELECT jsondata->>'id' AS id, naksha_xyz_txn(jsondata) AS txn, {{content}}
  FROM {{table}} TABLESAMPLE SYSTEM ({{percent}}) WHERE {{conditions}}

-- name: heap_size
-- The bytes to read of some tables and their partitions.
SELECT coalesce(sum(pg_relation_size(t.oid)), 0)::int8
  FROM unnest($1::text[]) AS n, LATERAL (
       SELECT to_regclass(n)::oid AS oid
       UNION SELECT p.relid::oid FROM pg_partition_tree(to_regclass(n)) AS p) AS t
