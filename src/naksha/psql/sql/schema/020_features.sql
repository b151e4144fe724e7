-- The contents of jsondata. These one-line functions are inlined by the planner, so indices,
-- partition keys and queries all use the same expression.

CREATE OR REPLACE FUNCTION naksha_xyz(jsondata jsonb) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN jsondata->'properties'->'@ns:com:here:xyz';

CREATE OR REPLACE FUNCTION naksha_xyz_txn(jsondata jsonb) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN (jsondata->'properties'->'@ns:com:here:xyz'->>'txn')::int8;

CREATE OR REPLACE FUNCTION naksha_xyz_txn_next(jsondata jsonb) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN (jsondata->'properties'->'@ns:com:here:xyz'->>'txn_next')::int8;

CREATE OR REPLACE FUNCTION naksha_xyz_action(jsondata jsonb) RETURNS text
IMMUTABLE PARALLEL SAFE
RETURN jsondata->'properties'->'@ns:com:here:xyz'->>'action';

-- The transactions a state is visible at: [txn, txn_next), open while it is HEAD, empty for a state
-- that was overwritten inside its own transaction. Empty, too, when the bounds are reversed: the
-- order is checked after the write, and that check must raise the error.
CREATE OR REPLACE FUNCTION naksha_span(jsondata jsonb) RETURNS int8range
IMMUTABLE PARALLEL SAFE
RETURN int8range((jsondata->'properties'->'@ns:com:here:xyz'->>'txn')::int8,
    CASE jsondata->'properties'->'@ns:com:here:xyz'->>'txn_next' WHEN '0' THEN NULL
    ELSE greatest((jsondata->'properties'->'@ns:com:here:xyz'->>'txn_next')::int8,
                  (jsondata->'properties'->'@ns:com:here:xyz'->>'txn')::int8) END);

-- Content is what the client wrote: the feature without geometry mark and namespace.
CREATE OR REPLACE FUNCTION naksha_content(jsondata jsonb) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN jsondata #- '{properties,@ns:com:here:xyz}';

CREATE OR REPLACE FUNCTION naksha_with_xyz(content jsonb, xyz jsonb) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN jsonb_set(content, '{properties,@ns:com:here:xyz}', xyz);

-- A copy for the history: only txn_next differs. Stable, not immutable, because it calls a stable
-- function: otherwise the planner would not inline it, at three times the cost.
CREATE OR REPLACE FUNCTION naksha_closed(jsondata jsonb, txn int8) RETURNS jsonb
STABLE PARALLEL SAFE
RETURN jsonb_set(jsondata, '{properties,@ns:com:here:xyz,txn_next}', to_jsonb(txn::text));

CREATE OR REPLACE FUNCTION naksha_make_xyz(
    action text, version int8, author text, app_id text, uuid text, puuid text, muuid text,
    txn int8, created_at int8, updated_at int8, rtcts int8, rtuts int8, tags jsonb, crid text,
    qrid text) RETURNS jsonb
STABLE PARALLEL SAFE
RETURN jsonb_build_object(
    'action', action, 'version', version, 'author', author, 'appId', app_id, 'uuid', uuid,
    'puuid', puuid, 'muuid', muuid, 'txn', txn::text, 'txn_next', '0', 'createdAt', created_at,
    'updatedAt', updated_at, 'rtcts', rtcts, 'rtuts', rtuts, 'tags', coalesce(tags, '[]'),
    'crid', crid, 'qrid', qrid, 'mrid', coalesce(crid, qrid));

-- The geometry column is always 3D, as the table layout requires. A feature that was written with
-- three dimensions carries the mark "naksha:3d", which never leaves the database.
CREATE OR REPLACE FUNCTION naksha_is_3d(jsondata jsonb) RETURNS bool
IMMUTABLE PARALLEL SAFE
RETURN jsondata ? 'naksha:3d';

CREATE OR REPLACE FUNCTION naksha_geo_out(geo geometry, jsondata jsonb) RETURNS geometry
IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsondata ? 'naksha:3d' THEN geo ELSE ST_Force2D(geo) END;

CREATE OR REPLACE FUNCTION naksha_json_out(jsondata jsonb) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsondata ? 'naksha:3d' THEN jsondata - 'naksha:3d' ELSE jsondata END;

-- Whether all coordinates are finite. A finite sum proves it quickly; the sum of large heights may
-- overflow, and then each coordinate is tested.
CREATE OR REPLACE FUNCTION naksha_is_finite(geo geometry) RETURNS bool
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    IF GeometryType(geo) IN ('LINESTRING', 'MULTILINESTRING', 'POLYGON', 'MULTIPOLYGON')
       AND ST_3DLength(geo) + ST_3DPerimeter(geo) < 'Infinity' THEN
        RETURN true;
    END IF;
    RETURN NOT EXISTS (
        SELECT FROM ST_DumpPoints(geo) AS p
         WHERE NOT (abs(ST_X(p.geom)) < 'Infinity' AND abs(ST_Y(p.geom)) < 'Infinity'
                    AND coalesce(abs(ST_Z(p.geom)) < 'Infinity', true)));
END $$;

-- How deep collections are nested in a geometry (0 for none), and a type inside it that GeoJSON
-- does not have.
CREATE OR REPLACE FUNCTION naksha_geo_kinds(geo geometry, OUT depth int, OUT unknown text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path FROM CURRENT AS $$
DECLARE
    kind text := GeometryType(geo);
BEGIN
    IF kind = 'GEOMETRYCOLLECTION' THEN
        SELECT 1 + coalesce(max(k.depth), 0), min(k.unknown) INTO depth, unknown
          FROM generate_series(1, ST_NumGeometries(geo)) n,
               naksha_geo_kinds(ST_GeometryN(geo, n)) AS k;
    ELSE
        depth := 0;
        unknown := CASE WHEN kind NOT IN ('POINT', 'LINESTRING', 'POLYGON', 'MULTIPOINT',
                                          'MULTILINESTRING', 'MULTIPOLYGON') THEN kind END;
    END IF;
END $$;

-- GeoJSON of a collection, which ST_AsGeoJSON refuses when one is inside another.
CREATE OR REPLACE FUNCTION naksha_collection_json(geo geometry) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    IF GeometryType(geo) <> 'GEOMETRYCOLLECTION' THEN
        RETURN ST_AsGeoJSON(geo, 400, 0);
    END IF;
    RETURN '{"type":"GeometryCollection","geometries":['
        || (SELECT string_agg(naksha_collection_json(ST_GeometryN(geo, n)), ',' ORDER BY n)
              FROM generate_series(1, ST_NumGeometries(geo)) n) || ']}';
END $$;

-- Whether GeoJSON can represent a geometry: no curves, no NaN, no Infinity. Triggers of older
-- versions accepted them in middle vertices. Points were always checked; sums over the others cost
-- little.
CREATE OR REPLACE FUNCTION naksha_is_readable(geo geometry) RETURNS bool
IMMUTABLE PARALLEL SAFE
RETURN CASE GeometryType(geo)
    WHEN 'POINT' THEN true
    WHEN 'LINESTRING' THEN ST_3DLength(geo) < 'Infinity' OR naksha_is_finite(geo)
    WHEN 'MULTILINESTRING' THEN ST_3DLength(geo) < 'Infinity' OR naksha_is_finite(geo)
    WHEN 'POLYGON' THEN ST_3DPerimeter(geo) < 'Infinity' OR naksha_is_finite(geo)
    WHEN 'MULTIPOLYGON' THEN ST_3DPerimeter(geo) < 'Infinity' OR naksha_is_finite(geo)
    WHEN 'MULTIPOINT' THEN naksha_is_finite(geo)
    WHEN 'GEOMETRYCOLLECTION'
    THEN naksha_is_finite(geo) AND (naksha_geo_kinds(geo)).unknown IS NULL
    ELSE false END;

-- Replacement of a geometry that GeoJSON cannot represent: null, and a member that marks the
-- feature.
CREATE OR REPLACE FUNCTION naksha_damaged_json(geo geometry) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path FROM CURRENT AS $$
BEGIN
    RETURN 'null,"@ns:naksha:damaged":' || jsonb_build_object('field', 'geometry',
        'problem', coalesce('GeoJSON has no geometry of type ' || (naksha_geo_kinds(geo)).unknown,
                            'A coordinate is not finite'))::text;
END $$;

-- GeoJSON of a geometry; 400 decimals reproduce every double exactly.
CREATE OR REPLACE FUNCTION naksha_geo_json(geo geometry, jsondata jsonb) RETURNS text
IMMUTABLE PARALLEL SAFE
RETURN coalesce(CASE WHEN NOT naksha_is_readable(geo) THEN naksha_damaged_json(geo)
    WHEN GeometryType(geo) = 'GEOMETRYCOLLECTION' THEN naksha_collection_json(
        CASE WHEN jsondata ? 'naksha:3d' THEN geo ELSE ST_Force2D(geo) END)
    ELSE ST_AsGeoJSON(
        CASE WHEN jsondata ? 'naksha:3d' THEN geo ELSE ST_Force2D(geo) END, 400, 0) END, 'null');

-- The whole GeoJSON feature as UTF-8 bytes. It uses `right`, because `substr` counts all
-- characters, which takes a third of the whole time.
CREATE OR REPLACE FUNCTION naksha_feature(geo geometry, jsondata jsonb) RETURNS bytea
STABLE PARALLEL SAFE
RETURN convert_to('{"geometry":' || naksha_geo_json(geo, jsondata) || ','
                  || right(naksha_json_out(jsondata)::text, -1), 'UTF8');

CREATE OR REPLACE FUNCTION naksha_epoch_ms(ts timestamptz) RETURNS int8
STABLE PARALLEL SAFE
RETURN floor(extract(epoch FROM ts) * 1000)::int8;

-- The inverse; exact in every year, unlike to_timestamp, whose parameter is a float8.
CREATE OR REPLACE FUNCTION naksha_time_of(epoch_ms int8) RETURNS timestamptz
STABLE PARALLEL SAFE
RETURN (timestamp 'epoch' + epoch_ms * interval '1 millisecond') AT TIME ZONE 'UTC';

-- A state of the history as it was while it was valid: without its end. Usually the text of its end
-- occurs once, and is cut out; if the content contains the same text, the document is parsed
-- instead. It runs for every row and refers to nothing in the schema, so it sets no search_path:
-- setting it takes longer than the rest.
CREATE OR REPLACE FUNCTION naksha_without_end(document text, ending text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    opened text := replace(document, '"txn_next": "' || ending || '"', '"txn_next": "0"');
BEGIN
    IF octet_length(document) - octet_length(opened) = octet_length(ending) - 1 THEN
        RETURN opened;
    END IF;
    RETURN jsonb_set(document::jsonb, '{properties,@ns:com:here:xyz,txn_next}', '"0"');
END $$;

CREATE OR REPLACE FUNCTION naksha_text_open(jsondata jsonb) RETURNS text
STABLE PARALLEL SAFE
RETURN naksha_without_end(naksha_json_out(jsondata)::text,
                          jsondata->'properties'->'@ns:com:here:xyz'->>'txn_next');

CREATE OR REPLACE FUNCTION naksha_feature_open(geo geometry, jsondata jsonb) RETURNS bytea
STABLE PARALLEL SAFE
RETURN convert_to('{"geometry":' || naksha_geo_json(geo, jsondata) || ','
                  || right(naksha_text_open(jsondata), -1), 'UTF8');

-- The same as seen from version `at`: without an end that is later than that version.
CREATE OR REPLACE FUNCTION naksha_text_at(jsondata jsonb, at int8) RETURNS text
STABLE PARALLEL SAFE
RETURN CASE WHEN naksha_xyz_txn_next(jsondata) <= at THEN naksha_json_out(jsondata)::text
            ELSE naksha_text_open(jsondata) END;

CREATE OR REPLACE FUNCTION naksha_feature_at(geo geometry, jsondata jsonb, at int8) RETURNS bytea
STABLE PARALLEL SAFE
RETURN CASE WHEN naksha_xyz_txn_next(jsondata) <= at THEN naksha_feature(geo, jsondata)
            ELSE naksha_feature_open(geo, jsondata) END;
