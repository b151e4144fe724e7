-- Geometries written by plain SQL, in the column `geo` or as GeoJSON inside jsondata. The rules are
-- the same as the library's (naksha.model.geo.geometry_rules).

-- The problem of a geometry, null if it is valid. The column type has ensured SRID 4326 and three
-- dimensions.
CREATE OR REPLACE FUNCTION naksha_geo_problem(geo geometry) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE STRICT SET search_path FROM CURRENT AS $$
DECLARE
    kinds record;
BEGIN
    -- NOT (… AND …), so that NaN, which compares greater than everything, is refused as well.
    IF NOT (ST_XMin(geo) >= -180 AND ST_XMax(geo) <= 180
            AND ST_YMin(geo) >= -90 AND ST_YMax(geo) <= 90
            AND abs(ST_ZMin(geo)) < 'Infinity' AND abs(ST_ZMax(geo)) < 'Infinity')
       OR NOT naksha_is_finite(geo) THEN
        RETURN 'Coordinates must be finite, longitude within ±180 and latitude within ±90';
    END IF;
    IF ST_IsEmpty(geo) THEN
        RETURN 'Empty geometry; use null instead';
    END IF;
    IF GeometryType(geo) = 'POINT' THEN
        RETURN NULL;
    END IF;
    kinds := naksha_geo_kinds(geo);
    IF kinds.unknown IS NOT NULL THEN
        RETURN format('GeoJSON has no geometry of type %s', kinds.unknown);
    END IF;
    IF kinds.depth > 8 THEN
        RETURN 'Collections are nested more than 8 deep';
    END IF;
    RETURN (SELECT min(CASE
        WHEN ST_IsEmpty(p.geom) THEN 'A part of the geometry is empty'
        WHEN GeometryType(p.geom) = 'LINESTRING' AND ST_NPoints(p.geom) < 2
        THEN 'A line needs at least 2 positions'
        WHEN GeometryType(p.geom) = 'POLYGON' AND EXISTS (
            SELECT FROM ST_DumpRings(p.geom) r WHERE ST_NPoints(r.geom) < 4
                OR NOT ST_IsClosed(ST_ExteriorRing(r.geom)))
        THEN 'A ring needs at least 4 positions, and its last one is the first' END)
      FROM ST_Dump(geo) AS p);
END $$;

CREATE OR REPLACE FUNCTION naksha_raise_geo(
    c naksha_collection, feature_id text, problem text, hint text DEFAULT '') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_raise('N0006', problem, jsonb_build_object('collection', naksha_name(c),
        'feature', feature_id, 'field', 'geometry'), hint);
END $$;

-- Raises an error if a geometry is invalid.
CREATE OR REPLACE FUNCTION naksha_check_geo(c naksha_collection, feature_id text, geo geometry)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
BEGIN
    IF geo IS NULL THEN
        RETURN;
    END IF;
    problem := naksha_geo_problem(geo);
    IF problem IS NULL AND c.points_only AND GeometryType(geo) <> 'POINT' THEN
        problem := 'The collection takes points only';
    END IF;
    IF problem IS NOT NULL THEN
        PERFORM naksha_raise_geo(c, feature_id, problem);
    END IF;
END $$;

-- The problem of the nesting of GeoJSON (PostGIS accepts nearly anything), null if it is valid; and
-- the least and greatest size of its positions. Other problems are found in the geometry itself.
CREATE OR REPLACE FUNCTION naksha_geojson_problem(
    shape jsonb, OUT problem text, OUT least_numbers int, OUT most_numbers int)
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    levels int := CASE shape->>'type' WHEN 'Point' THEN 0 WHEN 'MultiPoint' THEN 1
        WHEN 'LineString' THEN 1 WHEN 'MultiLineString' THEN 2 WHEN 'Polygon' THEN 2
        WHEN 'MultiPolygon' THEN 3 END;
    path   jsonpath := ('strict $.coordinates' || repeat('[*]', levels))::jsonpath;
    plain  bool;
BEGIN
    IF shape->>'type' = 'GeometryCollection' THEN
        SELECT min(m.problem), min(m.least_numbers), max(m.most_numbers)
          INTO problem, least_numbers, most_numbers
          FROM jsonb_path_query(shape, 'strict $.geometries[*]') AS g(member),
               naksha_geojson_problem(g.member) AS m;
    ELSIF levels IS NULL THEN
        problem := format('%s is not a type of geometry', coalesce(shape->'type', 'null'));
        RETURN;
    ELSE
        SELECT min(jsonb_array_length(p)), max(jsonb_array_length(p)),
               bool_and(NOT p @? 'strict $[*] ? (@.type() != "number")')
          INTO least_numbers, most_numbers, plain FROM jsonb_path_query(shape, path) AS p;
    END IF;
    IF problem IS NULL AND (least_numbers < 2 OR most_numbers > 3 OR NOT plain
                            OR least_numbers <> most_numbers) THEN
        problem := 'A position has 2 or 3 numbers, and all positions have the same number of them';
    END IF;
EXCEPTION WHEN data_exception THEN
    problem := format('The arrays of a %s are nested in another way', shape->>'type');
END $$;

-- The geometry of a GeoJSON object, in two or three dimensions; null for JSON's null.
CREATE OR REPLACE FUNCTION naksha_geojson(c naksha_collection, feature_id text, shape jsonb)
RETURNS geometry
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
BEGIN
    IF jsonb_typeof(shape) = 'null' OR shape IS NULL THEN
        RETURN NULL;
    END IF;
    problem := CASE WHEN jsonb_typeof(shape) <> 'object' THEN 'A geometry is an object or null'
                    ELSE (naksha_geojson_problem(shape)).problem END;
    IF problem IS NOT NULL THEN
        PERFORM naksha_raise_geo(c, feature_id, problem);
    END IF;
    -- Coordinates are WGS 84; PostGIS would honour a member "crs". It reads long whole numbers as
    -- int8, so they get a decimal point.
    RETURN ST_SetSRID(ST_GeomFromGeoJSON(regexp_replace((shape - 'crs')::text,
        '(?<![0-9.])([0-9]{19,})(?![0-9.])', '\1.0', 'g')), 4326);
END $$;

-- The geometry that a row gets, and whether it has three dimensions. It is given in the column or
-- as the member "geometry" of jsondata; the one that differs from the old row is used. JSON's null
-- removes the geometry, and without the member the column is used.
CREATE OR REPLACE FUNCTION naksha_shape(
    c naksha_collection, feature_id text, jsondata jsonb, INOUT geo geometry, old_geo geometry,
    old_json jsonb, OUT three_d bool)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    sent geometry := naksha_geojson(c, feature_id, jsondata->'geometry');
BEGIN
    IF jsondata ? 'geometry'
       AND sent::bytea IS DISTINCT FROM naksha_geo_out(old_geo, old_json)::bytea THEN
        IF geo::bytea IS DISTINCT FROM old_geo::bytea
           AND ST_Force3D(geo)::bytea IS DISTINCT FROM ST_Force3D(sent)::bytea THEN
            PERFORM naksha_raise_geo(c, feature_id, 'The column geo and the geometry inside '
                'jsondata were both given, and differ', 'Give one of them');
        END IF;
        geo := ST_Force3D(sent);
        three_d := coalesce(ST_NDims(sent) = 3, false);
    ELSE
        -- A 2D feature stays 2D until a write gives it heights.
        three_d := geo IS NOT NULL AND ST_NDims(geo) = 3 AND (
            old_geo IS NULL OR naksha_is_3d(old_json) OR ST_ZMin(geo) <> 0 OR ST_ZMax(geo) <> 0);
    END IF;
END $$;
