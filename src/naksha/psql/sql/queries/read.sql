-- Fragments that `naksha.psql.read.statements` and `printer` combine.

-- name: select_states
SELECT s.id, s.feature FROM ({{sources}}) AS s {{order}}

-- name: select_states_in_space
-- For sources of rows. The space's name is inserted after the key of the namespace and its opening
-- brace. The content may contain such a key too; then more than one place is found, and the
-- document is parsed. Each `OFFSET 0` keeps a text from being built again at each use; rows stay in
-- their order, because they are only projected.
SELECT s.id, convert_to('{"geometry":' || naksha_geo_json(s.geo, s.jsondata) || ',' || right(
           CASE WHEN octet_length(s.spliced) - octet_length(s.document)
                     = octet_length({{splice}}) - octet_length('"@ns:com:here:xyz": {')
                THEN s.spliced
                ELSE jsonb_set(s.document::jsonb, '{properties,@ns:com:here:xyz,space}',
                               {{space}}::jsonb)::text END, -1), 'UTF8') AS feature
  FROM (SELECT s.*, replace(s.document, '"@ns:com:here:xyz": {', {{splice}}) AS spliced
          FROM (SELECT s.id, s.geo, s.jsondata, {{document}} AS document
                  FROM ({{sources}}) AS s {{order}} OFFSET 0) AS s OFFSET 0) AS s

-- name: document
-- The text of a row's document as seen from the version.
CASE WHEN s.seen IS NULL THEN naksha_json_out(s.jsondata)::text
     ELSE naksha_text_at(s.jsondata, s.seen) END

-- name: select_count
SELECT count(*) FROM ({{sources}}) AS s

-- name: source
SELECT jsondata->>'id' AS id, naksha_xyz_txn(jsondata) AS txn, {{content}}
  FROM {{table}} WHERE {{conditions}}

-- name: source_whole
-- The text of a feature is built above the scans: the OFFSET keeps the plan from containing that
-- expression once for every partition. It is quoted because the planner reads an integer as a cast
-- to bigint, that is a limit which is not known, and would plan no parallel workers.
SELECT s.id, {{content}}
  FROM (SELECT jsondata->>'id' AS id, geo, jsondata
          FROM {{table}} WHERE {{conditions}} OFFSET '0') AS s

-- name: source_whole_open
-- The same for states of the history without their end: naksha_feature_open without a call of
-- PL/pgSQL for every row. Each OFFSET keeps a text from being built again at each use.
SELECT s.id, convert_to('{"geometry":' || naksha_geo_json(s.geo, s.jsondata) || ',' || right(
           CASE WHEN octet_length(s.document) - octet_length(s.opened) = octet_length(s.ending) - 1
                THEN s.opened
                ELSE naksha_without_end(s.document, s.ending) END, -1), 'UTF8') AS feature
  FROM (SELECT s.*, replace(s.document, '"txn_next": "' || s.ending || '"', '"txn_next": "0"')
                        AS opened
          FROM (SELECT jsondata->>'id' AS id, geo, jsondata,
                       naksha_json_out(jsondata)::text AS document,
                       naksha_xyz(jsondata)->>'txn_next' AS ending
                  FROM {{table}} WHERE {{conditions}} OFFSET '0') AS s OFFSET '0') AS s

-- name: source_page
-- Limited in every source, in the order of its index on ids: a page reads its own rows only.
(SELECT jsondata->>'id' AS id, naksha_xyz_txn(jsondata) AS txn, {{content}}
  FROM {{table}} WHERE {{conditions}}
 ORDER BY jsondata->>'id' USING ~<~{{then}} LIMIT {{limit}})

-- name: then_txn
, naksha_xyz_txn(jsondata)

-- name: then_txn_of_page
, s.txn

-- name: source_count
SELECT FROM {{table}} WHERE {{conditions}}

-- name: feature
naksha_feature(geo, jsondata) AS feature

-- name: feature_open
-- A state of the history that is valid at the version, from which its end is not visible.
naksha_feature_open(geo, jsondata) AS feature

-- name: feature_at
-- Any state of the history as seen from the version.
naksha_feature_at(geo, jsondata, {{at}}) AS feature

-- name: row
-- The row of a state, for further processing; `seen` is the version that the end of the state is
-- seen from, null if it is as stored.
geo, jsondata, NULL::int8 AS seen

-- name: row_open
geo, jsondata, 0::int8 AS seen

-- name: row_at
geo, jsondata, {{at}} AS seen

-- name: order_page
-- In the order of the sources, so that they only need to be merged.
ORDER BY s.id USING ~<~{{then}} LIMIT {{limit}}

-- name: cut
LIMIT {{limit}}

-- name: begun
true

-- name: begun_at
naksha_xyz_txn(jsondata) <= {{at}}

-- name: begun_in_area
-- The same for states that are found by their geometry: its index contains their spans, unless the
-- collection is for points only. The planner evaluates the function; one of the conditions is left.
CASE WHEN naksha_has_spans({{table}}) THEN naksha_span(jsondata) @> {{at}}
     ELSE naksha_xyz_txn(jsondata) <= {{at}} END

-- name: visible
naksha_xyz_txn(jsondata) < naksha_xyz_txn_next(jsondata)

-- name: visible_at
naksha_xyz_txn(jsondata) < naksha_xyz_txn_next(jsondata) AND naksha_xyz_txn(jsondata) <= {{at}}

-- name: valid
naksha_span(jsondata) @> {{at}} AND naksha_xyz_txn_next(jsondata) > {{at}}

-- name: valid_in_area
-- The span says it all. For a whole version the second condition is an index's too; in an area it
-- would read each document.
naksha_span(jsondata) @> {{at}}

-- name: valid_by_start
-- The same for states that are found by their id or beginning, and for tombstones.
naksha_xyz_txn(jsondata) <= {{at}} AND naksha_xyz_txn_next(jsondata) > {{at}}

-- name: from_day
naksha_xyz_txn_next(jsondata) >= {{first}}

-- name: replaced
-- Valid at a transaction, but not any more. The transactions that ended these states are fewer than
-- those that created them.
naksha_xyz_txn(jsondata) <= {{since}} AND naksha_xyz_txn_next(jsondata) > {{since}}

-- name: ended
-- States that ended at or before the layer's version are in no layer above.
naksha_xyz_txn_next(jsondata) <= {{at}}

-- name: alive
naksha_xyz_action(jsondata) <> 'DELETE'

-- name: dead
naksha_xyz_action(jsondata) = 'DELETE'

-- name: after_cursor
-- Ids compare by code point (the pattern operators do), then by txn.
(jsondata->>'id' ~>=~ {{id}}
 AND (jsondata->>'id' ~>~ {{id}} OR naksha_xyz_txn(jsondata) > {{txn}}))

-- name: one_id
jsondata->>'id' = {{id}} AND substring(md5(jsondata->>'id'), 1, 1) = {{leaf}}

-- name: many_ids
jsondata->>'id' = ANY({{ids}}) AND substring(md5(jsondata->>'id'), 1, 1) IN ({{leaves}})

-- name: ids_elsewhere
jsondata->>'id' = ANY({{ids}})

-- name: part_first
substring(md5(jsondata->>'id'), 1, 8) COLLATE "C" >= {{first}}

-- name: part_last
substring(md5(jsondata->>'id'), 1, 8) COLLATE "C" <= {{last}}

-- name: box
-- The operators work on float32 boxes: rows that are not safely inside are tested exactly. A
-- generic plan would compute the inner box again for every row if it were not a subquery.
geo && ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}}, 4326)
AND (geo @ (SELECT ST_MakeEnvelope({{west}} + 0.0001, {{south}} + 0.0001, {{east}} - 0.0001,
                                   {{north}} - 0.0001, 4326))
     OR (ST_XMin(geo) <= {{east}} AND ST_XMax(geo) >= {{west}}
         AND ST_YMin(geo) <= {{north}} AND ST_YMax(geo) >= {{south}}))

-- name: thin_box
-- Too thin to be safely inside.
geo && ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}}, 4326)
AND ST_XMin(geo) <= {{east}} AND ST_XMax(geo) >= {{west}}
AND ST_YMin(geo) <= {{north}} AND ST_YMax(geo) >= {{south}}

-- name: rough_box
geo && ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}}, 4326)

-- name: intersects
ST_Intersects(geo, ST_SetSRID(ST_GeomFromWKB({{wkb}}), 4326))

-- name: near
ST_DWithin(geo::geography, ST_SetSRID(ST_GeomFromWKB({{wkb}}), 4326)::geography, {{radius}})

-- name: tags_all
naksha_xyz(jsondata)->'tags' ?& {{tags}}

-- name: text
naksha_xyz(jsondata)->>'{{key}}'

-- name: number
(naksha_xyz(jsondata)->>'{{key}}')::int8

-- name: txn
naksha_xyz_txn(jsondata)

-- name: prefix
{{column}} ~>=~ {{first}} AND {{column}} ~<~ {{end}}

-- name: from_value
{{column}} ~>=~ {{first}}

-- name: one_of
{{column}} = ANY({{values}})

-- name: any_action
naksha_xyz_action(jsondata) IN ('CREATE', 'UPDATE', 'DELETE')

-- name: at_least
{{column}} >= {{value}}

-- name: below
{{column}} < {{value}}

-- name: path
-- Step by step: a single path would take a number for an index of an array.
(jsondata{{steps}})

-- name: step
->{{key}}

-- name: geometry_type
-- As GeoJSON names it; null for a feature without geometry.
to_jsonb(replace(ST_GeometryType(geo), 'ST_', ''))

-- name: test_eq
{{path}} = {{value}}::jsonb

-- name: test_ne
{{path}} <> {{value}}::jsonb

-- name: test_exists
{{path}} IS NOT NULL

-- name: test_is_null
{{path}} = 'null'

-- name: test_starts_with
(jsonb_typeof({{path}}) = 'string' AND starts_with({{path}} #>> '{}', {{value}}))

-- name: test_any_starts_with
(jsonb_typeof({{path}}) = 'array'
 AND jsonb_path_exists({{path}}, 'strict $[*] ? (@ starts with $start)',
                       jsonb_build_object('start', {{value}}), true))

-- name: test_contains
{{path}} @> {{value}}::jsonb

-- name: test_order_number
(jsonb_typeof({{path}}) = 'number' AND {{path}} {{operator}} {{value}}::jsonb)

-- name: test_order_string
(jsonb_typeof({{path}}) = 'string'
 AND ({{path}} #>> '{}') COLLATE "C" {{operator}} {{value}}::text COLLATE "C")

-- name: state_seen_at
-- As seen from a version, if it existed then.
CASE WHEN naksha_xyz_txn(jsondata) > {{at}} THEN naksha_feature(geo, jsondata)
     ELSE naksha_feature_at(geo, jsondata, {{at}}) END

-- name: state_by_i
SELECT {{layer}} AS layer, jsondata->>'id' AS id, naksha_feature(geo, jsondata) AS feature
  FROM {{head}} WHERE i = {{i}}
UNION ALL
SELECT {{layer}}, jsondata->>'id', naksha_feature(geo, jsondata) FROM {{del_}} WHERE i = {{i}}
UNION ALL
SELECT {{layer}}, jsondata->>'id', {{seen}} FROM {{hst}}
 WHERE i = {{i}} AND naksha_xyz_txn_next(jsondata) >= {{since}}

-- name: topmost_state
SELECT s.id, s.feature FROM ({{sources}}) AS s {{order}} LIMIT 1

-- name: unmasked
-- Not hidden by a layer above.
NOT EXISTS (SELECT FROM {{ids}} AS mask WHERE mask.id = jsondata->>'id')

-- ---- Checked statements (naksha.psql.read.checked_statement) --------------------------

-- name: checked
-- Nothing is read if there is an obstacle, and no row is selected without the collection.
WITH check_ AS MATERIALIZED (
    SELECT {{obstacle}} AS obstacle FROM naksha_collection AS c
     WHERE c.id = {{collection}} AND c.dropped_at = 0 AND c.overlay = 0
       AND c.created_txn <= {{last_seen}})
SELECT obstacle, {{columns}} FROM check_
UNION ALL
SELECT NULL, s.* FROM ({{statement}}) AS s WHERE EXISTS (SELECT FROM check_ WHERE obstacle = '')

-- name: obstacle
-- Empty if there is none.
CASE {{cases}} ELSE '' END

-- name: version_obstacle
WHEN NOT EXISTS (SELECT FROM naksha_version AS v WHERE v.txn = {{version}}) THEN 'version'

-- name: overlays_obstacle
-- An overlay without tables of the collection has an empty name, and one that is gone has none.
WHEN {{tables}} IS DISTINCT FROM ARRAY(
     SELECT CASE WHEN o.number IS NOT NULL THEN coalesce(h.id, '') END
       FROM unnest({{overlays}}) WITH ORDINALITY AS l(number, n)
       LEFT JOIN naksha_overlay AS o ON o.number = l.number
       LEFT JOIN naksha_collection AS h ON h.base = c.id AND h.overlay = l.number
      ORDER BY l.n) THEN 'overlays'

-- name: partitions_obstacle
WHEN naksha_planned_partitions({{histories}}) <> ARRAY(
     SELECT p.inhrelid FROM pg_inherits AS p
      WHERE p.inhparent = ANY({{histories}}::oid[]) ORDER BY p.inhrelid) THEN 'partitions'

-- name: floor_obstacle
WHEN {{since}} < (SELECT CASE WHEN h.off_since IS NULL THEN h.floor_txn ELSE naksha_floor(h.id) END
                    FROM naksha_collection AS h WHERE h.id = {{table}}) THEN 'floor'

-- name: notice_partitions
-- Reading the size of a table that is not locked makes the session notice changes of its tables by
-- others, so that its next statements are planned for them.
SELECT pg_relation_size('naksha_migration')
