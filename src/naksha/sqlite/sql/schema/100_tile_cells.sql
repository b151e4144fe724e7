-- The cells of the tile pyramid that each transaction changed, see `naksha.model.geo.tile_cells`: a
-- JSON array in its log row. Null is the whole world: a change of the collection, or a transaction
-- from before the cells were recorded.
ALTER TABLE naksha_tx ADD COLUMN cells TEXT;

-- The last transaction of each cell, and of all cells inside of it, up to the transaction
-- `cells_txn`; later ones are in the log only.
CREATE TABLE naksha_cell (
    collection TEXT NOT NULL,
    overlay    INTEGER NOT NULL,
    cell       INTEGER NOT NULL,
    txn        INTEGER NOT NULL,
    inside_txn INTEGER NOT NULL,
    PRIMARY KEY (collection, overlay, cell)
) WITHOUT ROWID;
ALTER TABLE naksha_storage ADD COLUMN cells_txn INTEGER NOT NULL DEFAULT 0;

-- What happened before is not known any more: every collection counts as changed by now.
UPDATE naksha_storage SET cells_txn = (SELECT coalesce(max(txn), 0) FROM naksha_version);
INSERT INTO naksha_cell (collection, overlay, cell, txn, inside_txn)
SELECT k.id, k.overlay, 1, o.cells_txn, 0
  FROM naksha_storage o,
       (SELECT id, 0 AS overlay FROM naksha_collection
        UNION ALL
        SELECT c.id, m.overlay
          FROM naksha_overlaid m JOIN naksha_collection c ON c.number = m.collection) AS k;

-- The cells of the old and the new box of the edit in progress: of each box the deepest two by two
-- cells that contain it. The bits of column and row alternate in the number of a cell (in SQLite, |,
-- & and << have one precedence); CAST cuts off decimals.
CREATE VIEW naksha_edited_cell AS
WITH box (west, south, east, north) AS (
    SELECT west, south, east, north FROM naksha_edited
    UNION
    SELECT h.west, h.south, h.east, h.north
      FROM naksha_edited e JOIN naksha_head h ON h.n = e.n
), span (c0, c1, r0, r1) AS (
    SELECT min(CAST((west + 180) / 360.0 * 4096 AS INTEGER), 4095),
           min(CAST((east + 180) / 360.0 * 4096 AS INTEGER), 4095),
           min(CAST((90 - north) / 180.0 * 4096 AS INTEGER), 4095),
           min(CAST((90 - south) / 180.0 * 4096 AS INTEGER), 4095)
      FROM box WHERE west IS NOT NULL
), scaled (c0, c1, r0, r1, up) AS (
    SELECT c0, c1, r0, r1,
           (SELECT min(u.value) FROM json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12]') u
             WHERE (c1 >> u.value) - (c0 >> u.value) <= 1
               AND (r1 >> u.value) - (r0 >> u.value) <= 1)
      FROM span
), place (c, r, up) AS (
    SELECT c0 >> up, r0 >> up, up FROM scaled
    UNION SELECT c0 >> up, r1 >> up, up FROM scaled
    UNION SELECT c1 >> up, r0 >> up, up FROM scaled
    UNION SELECT c1 >> up, r1 >> up, up FROM scaled
), spread_8 (c, r, up) AS (
    SELECT (c | (c << 8)) & 0xFF00FF, (r | (r << 8)) & 0xFF00FF, up FROM place
), spread_4 (c, r, up) AS (
    SELECT (c | (c << 4)) & 0xF0F0F0F, (r | (r << 4)) & 0xF0F0F0F, up FROM spread_8
), spread_2 (c, r, up) AS (
    SELECT (c | (c << 2)) & 0x33333333, (r | (r << 2)) & 0x33333333, up FROM spread_4
), spread_1 (c, r, up) AS (
    SELECT (c | (c << 1)) & 0x55555555, (r | (r << 1)) & 0x55555555, up FROM spread_2
)
SELECT (1 << 2 * (12 - up)) | (r << 1) | c AS cell FROM spread_1;

-- All cells of the statement so far, as a JSON array of at most 500: if there were more, ancestors
-- replace the smallest ones. `cell >> 2 * level` is 1.
CREATE VIEW naksha_edited_cells AS
WITH known (cell) AS (
    SELECT cell FROM naksha_edited_cell
    UNION
    SELECT k.value
      FROM naksha_edited e JOIN naksha_collection c ON c.t = e.t
           JOIN naksha_tx t ON t.txn = e.txn AND t.action = 'MODIFY_FEATURES' AND t.id = c.id,
           json_each(t.cells) k
), level (level) AS (
    SELECT value FROM json_each('[0,1,2,3,4,5,6,7,8,9,10,11,12]')
), cell (cell, level) AS (
    SELECT cell, (SELECT level FROM level WHERE cell >> 2 * level = 1) FROM known
), deepest (level) AS (
    SELECT l.level FROM level l
     WHERE (SELECT count(DISTINCT cell >> 2 * max(level - l.level, 0)) FROM cell) <= 500
     ORDER BY l.level DESC LIMIT 1
)
SELECT json_group_array(DISTINCT c.cell >> 2 * max(c.level - d.level, 0)) AS cells
  FROM deepest d, cell c;

-- The log row of an edit begins with its cells; `naksha_retire` adds the counts and the box.
CREATE TRIGGER naksha_edited_cells_log AFTER INSERT ON naksha_edited
BEGIN
    INSERT INTO naksha_tx (ts, txn, ord, action, id, app_id, author, cells)
    SELECT s.now_ms, NEW.txn, NEW.ord, 'MODIFY_FEATURES', c.id, o.app_id, o.author, x.cells
      FROM naksha_shell s, naksha_storage o, naksha_collection c, naksha_edited_cells x
     WHERE c.t = NEW.t
    ON CONFLICT (txn, action, id) DO UPDATE SET cells = excluded.cells;
END;
