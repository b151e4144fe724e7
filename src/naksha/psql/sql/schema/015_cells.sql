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

-- The cells that record changes inside boxes, given by their corners: for each box the deepest ones
-- of which two by two contain it. `spread` has the numbers of six bits with a zero bit before each.
CREATE OR REPLACE FUNCTION naksha_cover(corners int8[]) RETURNS int8[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    spread CONSTANT int8[] := ARRAY[
        0, 1, 4, 5, 16, 17, 20, 21, 64, 65, 68, 69, 80, 81, 84, 85,
        256, 257, 260, 261, 272, 273, 276, 277, 320, 321, 324, 325, 336, 337, 340, 341,
        1024, 1025, 1028, 1029, 1040, 1041, 1044, 1045, 1088, 1089, 1092, 1093, 1104, 1105, 1108, 1109,
        1280, 1281, 1284, 1285, 1296, 1297, 1300, 1301, 1344, 1345, 1348, 1349, 1360, 1361, 1364, 1365];
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT (1::int8 << (24 - 2 * p.up))
               | (spread[1 + (p.x >> 6)] << 12) | spread[1 + (p.x & 63)]
               | (spread[1 + (p.y >> 6)] << 13) | (spread[1 + (p.y & 63)] << 1)
          FROM (SELECT b.up, (b.west >> b.up) + d.x AS x, (b.north >> b.up) + d.y AS y,
                       b.east >> b.up AS last_x, b.south >> b.up AS last_y
          FROM (SELECT c.*, CASE WHEN c.east - c.west < 2 AND c.south - c.north < 2 THEN 0
                    ELSE (SELECT count(*)::int FROM generate_series(0, 11) AS n
                           WHERE (c.east >> n) - (c.west >> n) > 1
                              OR (c.south >> n) - (c.north >> n) > 1) END AS up
                  FROM (SELECT (k >> 36)::int AS west, ((k >> 24) & 4095)::int AS north,
                               ((k >> 12) & 4095)::int AS east, (k & 4095)::int AS south
                          FROM unnest(corners) AS k) AS c) AS b,
               (VALUES (0, 0), (0, 1), (1, 0), (1, 1)) AS d(x, y)) AS p
         WHERE p.x <= p.last_x AND p.y <= p.last_y
         ORDER BY 1);
END $$;

-- Cells that cover the given ones, at most TILE_CELLS_MAX: ancestors replace the smallest ones.
CREATE OR REPLACE FUNCTION naksha_merged_cells(cells int8[]) RETURNS int8[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    -- The first cell of a level; cells of deeper levels have greater numbers.
    first int8 := 1::int8 << 24;
BEGIN
    cells := ARRAY(SELECT DISTINCT c FROM unnest(cells) AS c ORDER BY c);
    WHILE cardinality(cells) > 500 LOOP
        cells := ARRAY(SELECT DISTINCT CASE WHEN c >= first THEN c >> 2 ELSE c END
                         FROM unnest(cells) AS c ORDER BY 1);
        first := first >> 2;
    END LOOP;
    RETURN cells;
END $$;
