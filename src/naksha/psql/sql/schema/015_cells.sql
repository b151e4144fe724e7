-- Cells of the tile pyramid, by which the log records where features changed. The same in Python
-- (naksha.model.geo.tile_cells).

-- The smallest cells at the corners of a box, as one number of four times 12 bits: column and row
-- of the north-west, then of the south-east. The box must not be null; it should be a column, since
-- any other expression would be evaluated four times.
CREATE OR REPLACE FUNCTION naksha_corners(box box3d) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN (least(greatest(floor((ST_XMin(box) + 180) / 360 * 4096), 0), 4095)::int8 << 36)
     | (least(greatest(floor((90 - ST_YMax(box)) / 180 * 4096), 0), 4095)::int8 << 24)
     | (least(greatest(floor((ST_XMax(box) + 180) / 360 * 4096), 0), 4095)::int8 << 12)
     | least(greatest(floor((90 - ST_YMin(box)) / 180 * 4096), 0), 4095)::int8;

-- How many levels the cells of boxes must be merged at least, so that at most TILE_CELLS_MAX
-- remain: estimated from the north-western cells of at most a thousand small boxes, never too high.
CREATE OR REPLACE FUNCTION naksha_merge_levels(corners int8[]) RETURNS int
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    sample int8[] := ARRAY(
        SELECT k >> 24 FROM (SELECT corners[n] AS k FROM generate_series(
            1, cardinality(corners), cardinality(corners) / 1024 + 1) AS n OFFSET 0) AS s
         WHERE ((k >> 12) & 4095) - (k >> 36) < 2 AND (k & 4095) - ((k >> 24) & 4095) < 2);
    too_few int := -1;
    enough  int := 8;
    levels  int;
    mask    int8;
BEGIN
    WHILE enough - too_few > 1 LOOP
        levels := (too_few + enough) / 2;
        mask := (4095 >> levels) * ((1 << 12) + 1);
        IF 500 < (SELECT count(*) FROM (SELECT DISTINCT (k >> levels) & mask
                                          FROM unnest(sample) AS k) AS cells) THEN
            too_few := levels;
        ELSE
            enough := levels;
        END IF;
    END LOOP;
    RETURN enough;
END $$;

-- The cells that record changes inside boxes, given by their corners: for each box the deepest ones
-- of which two by two contain it, without those that merging would replace for sure. `spread` has
-- the numbers of six bits with a zero bit before each. It is on the path of every write, so the
-- cell of a single small box is computed without a query.
CREATE OR REPLACE FUNCTION naksha_cover(corners int8[]) RETURNS int8[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    spread CONSTANT int8[] :=
        '{0, 1, 4, 5, 16, 17, 20, 21, 64, 65, 68, 69, 80, 81, 84, 85, 256, 257, '
        '260, 261, 272, 273, 276, 277, 320, 321, 324, 325, 336, 337, 340, 341, '
        '1024, 1025, 1028, 1029, 1040, 1041, 1044, 1045, 1088, 1089, 1092, 1093, '
        '1104, 1105, 1108, 1109, 1280, 1281, 1284, 1285, 1296, 1297, 1300, 1301, '
        '1344, 1345, 1348, 1349, 1360, 1361, 1364, 1365}';
    merged int := 0;
    mask   int8;
    x      int;
    y      int;
BEGIN
    IF cardinality(corners) = 1 AND (corners[1] >> 24) = (corners[1] & 16777215) THEN
        x := corners[1] >> 36;
        y := corners[1] & 4095;
        RETURN ARRAY[(1 << 24) | (spread[1 + (x >> 6)] << 12) | spread[1 + (x & 63)]
                     | (spread[1 + (y >> 6)] << 13) | (spread[1 + (y & 63)] << 1)];
    ELSIF cardinality(corners) > 500 THEN
        merged := naksha_merge_levels(corners);
        -- The same bits of each of the four numbers.
        mask := (4095 >> merged) * ((1::int8 << 36) + (1 << 24) + (1 << 12) + 1);
        corners := ARRAY(SELECT DISTINCT (k >> merged) & mask FROM unnest(corners) AS k);
    END IF;
    RETURN ARRAY(
        WITH c AS (
            SELECT (k >> 36)::int AS west, ((k >> 24) & 4095)::int AS north,
                   ((k >> 12) & 4095)::int AS east, (k & 4095)::int AS south
              FROM unnest(corners) AS k OFFSET 0
        ), b AS (
            SELECT c.*, CASE WHEN c.east - c.west < 2 AND c.south - c.north < 2 THEN 0
                        ELSE (SELECT count(*)::int FROM generate_series(0, 11) AS n
                               WHERE (c.east >> n) - (c.west >> n) > 1
                                  OR (c.south >> n) - (c.north >> n) > 1) END AS up
              FROM c OFFSET 0
        ), box AS MATERIALIZED (
            SELECT west >> up AS west, north >> up AS north, east >> up AS east,
                   south >> up AS south, 1::int8 << (24 - 2 * (merged + up)) AS first FROM b
        )
        SELECT DISTINCT p.first | (spread[1 + (p.x >> 6)] << 12) | spread[1 + (p.x & 63)]
                        | (spread[1 + (p.y >> 6)] << 13) | (spread[1 + (p.y & 63)] << 1)
          FROM (SELECT first, west AS x, north AS y FROM box UNION ALL
                SELECT first, east, north FROM box WHERE east > west UNION ALL
                SELECT first, west, south FROM box WHERE south > north UNION ALL
                SELECT first, east, south FROM box WHERE east > west AND south > north) AS p);
END $$;

-- Cells that cover the given ones, at most TILE_CELLS_MAX: ancestors replace the smallest ones.
CREATE OR REPLACE FUNCTION naksha_merged_cells(cells int8[]) RETURNS int8[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- The first cell of a level; cells of deeper levels have greater numbers.
    first int8 := 1::int8 << 24;
BEGIN
    cells := ARRAY(SELECT DISTINCT c FROM unnest(cells) AS c);
    WHILE cardinality(cells) > 500 LOOP
        cells := ARRAY(SELECT DISTINCT CASE WHEN c >= first THEN c >> 2 ELSE c END
                         FROM unnest(cells) AS c);
        first := first >> 2;
    END LOOP;
    RETURN cells;
END $$;
