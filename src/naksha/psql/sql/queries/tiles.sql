-- Vector tiles; see naksha.psql.read.tiles. The columns of `t` are the properties of its features.

-- name: select_tile
-- And how many were found. Each `OFFSET 0` keeps what is computed from being computed again
-- wherever it is used.
SELECT ST_AsMVT(t.*, {{layer}}, {{extent}}, 'geom') AS tile, count(*) AS found
  FROM (SELECT s.id, {{namespace}}{{properties}} AS properties,
               CASE WHEN naksha_is_readable(s.geo) THEN
                   ST_AsMVTGeom({{shape}}, {{envelope}}, {{extent}}, {{buffer}}, {{clip}})
               END AS geom
          FROM (SELECT s.id, s.geo, s.properties, s.properties - {{taken}} AS own
                  FROM (SELECT s.id, s.geo, {{seen}}->'properties' AS properties
                          FROM ({{sources}}) AS s {{order}} OFFSET 0) AS s OFFSET 0) AS s) AS t

-- name: tile_seen
-- The end of a state that came after the version is not seen.
CASE WHEN s.seen IS NULL OR naksha_xyz_txn_next(s.jsondata) <= s.seen THEN s.jsondata
     ELSE naksha_closed(s.jsondata, 0) END

-- name: tile_document
-- The end of a state is in its namespace only.
s.jsondata

-- name: tile_shape
-- The poles are nowhere on the map; before PROJ 9 whoever tries to put them there gets an error;
-- so does who clips what has heights.
ST_Transform(CASE WHEN s.geo @ ST_MakeEnvelope(-180.1, -89, 180.1, 89, 4326) THEN ST_Force2D(s.geo)
    ELSE ST_ClipByBox2D(ST_Force2D(s.geo), ST_MakeEnvelope(-180.1, -89, 180.1, 89, 4326)) END, 3857)

-- name: tile_shape_flat
-- Scaled as it is; the tile itself is in degrees then.
ST_Force2D(s.geo)

-- name: tile_envelope
-- A plan for all values would make it anew for every row, were it not a query of its own.
(SELECT ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}})::box2d)

-- name: tile_namespace
(s.properties->'@ns:com:here:xyz')::text AS "@ns:com:here:xyz", 

-- name: tile_namespace_flat
(s.properties->'@ns:com:here:xyz'->>'{{key}}'){{type}} AS "properties.@ns:com:here:xyz.{{key}}", 

-- name: tile_properties
-- ST_AsMVT takes what is not nested out of the object by itself, and most features have nothing
-- else; what is empty is left out.
CASE WHEN s.own @? '$.**{2}' THEN {{nested}} ELSE s.own END

-- name: tile_nested
(SELECT jsonb_object_agg(e.key, CASE WHEN jsonb_typeof(e.value) IN ('object', 'array')
                                     THEN to_jsonb(e.value::text) ELSE e.value END)
   FROM jsonb_each(s.own) AS e WHERE e.value NOT IN ('{}', '[]'))

-- name: tile_flattened
-- Keys are paths in the feature. Of two with the same name the last one counts, which is the one
-- that is nested less.
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
