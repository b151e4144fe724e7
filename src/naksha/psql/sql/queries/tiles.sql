-- Vector tiles; see naksha.psql.read.tiles. The columns of `t` are the properties of its features.

-- name: select_tile
-- With the number of features found. Each `OFFSET 0` keeps values from being computed again at each
-- use.
SELECT ST_AsMVT(t.*, {{layer}}, {{extent}}, 'geom') AS tile, count(*) AS found
  FROM (SELECT s.id, {{namespace}}{{properties}} AS properties,
               CASE WHEN naksha_is_readable(s.geo) THEN
                   ST_AsMVTGeom({{shape}}, {{envelope}}, {{extent}}, {{buffer}}, {{clip}})
               END AS geom
          FROM (SELECT s.id, s.geo, s.properties, s.properties - {{taken}} AS own
                  FROM (SELECT s.id, s.geo, {{seen}}->'properties' AS properties
                          FROM ({{sources}}) AS s {{order}} OFFSET 0) AS s OFFSET 0) AS s) AS t

-- name: tile_seen
-- An end of a state after the version is not visible.
CASE WHEN s.seen IS NULL OR naksha_xyz_txn_next(s.jsondata) <= s.seen THEN s.jsondata
     ELSE naksha_closed(s.jsondata, 0) END

-- name: tile_document
-- The end of a state is visible in its namespace only.
s.jsondata

-- name: tile_geometry
ST_Force2D(s.geo)

-- name: tile_simplified
ST_Simplify({{geometry}}, {{tolerance}})

-- name: tile_shape
-- The poles are not on the map; before PROJ 9 projecting them is an error, as is clipping a
-- geometry with heights.
ST_Transform(CASE WHEN s.geo @ ST_MakeEnvelope(-180.1, -89, 180.1, 89, 4326) THEN {{geometry}}
    ELSE ST_ClipByBox2D({{geometry}}, ST_MakeEnvelope(-180.1, -89, 180.1, 89, 4326)) END, 3857)

-- name: tile_envelope
-- A generic plan would compute it again for every row if it were not a subquery.
(SELECT ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}})::box2d)

-- name: tile_namespace
(s.properties->'@ns:com:here:xyz')::text AS "@ns:com:here:xyz", 

-- name: tile_namespace_flat
(s.properties->'@ns:com:here:xyz'->>'{{key}}'){{type}} AS "properties.@ns:com:here:xyz.{{key}}", 

-- name: tile_properties
-- ST_AsMVT itself takes members that are not nested from the object, and most features have no
-- others; empty ones are omitted.
CASE WHEN s.own @? '$.**{2}' THEN {{nested}} ELSE s.own END

-- name: tile_nested
(SELECT jsonb_object_agg(e.key, CASE WHEN jsonb_typeof(e.value) IN ('object', 'array')
                                     THEN to_jsonb(e.value::text) ELSE e.value END)
   FROM jsonb_each(s.own) AS e WHERE e.value NOT IN ('{}', '[]'))

-- name: tile_flattened
-- Keys are paths in the feature. Of two with the same name the last one wins, which is the less
-- nested one.
(WITH RECURSIVE flat(key, value, depth) AS (
    SELECT e.key, e.value, 1 FROM jsonb_each(s.own) AS e
    UNION ALL
    SELECT f.key || '.' || e.key, e.value, f.depth + 1
      FROM flat AS f, jsonb_each(CASE jsonb_typeof(f.value) WHEN 'object' THEN f.value
                                                            ELSE '{}' END) AS e)
 SELECT jsonb_object_agg('properties.' || f.key, CASE jsonb_typeof(f.value) WHEN 'array'
                                     THEN to_jsonb(f.value::text) ELSE f.value END
                         ORDER BY f.depth DESC)
   FROM flat AS f WHERE jsonb_typeof(f.value) <> 'object' AND f.value <> '[]')
