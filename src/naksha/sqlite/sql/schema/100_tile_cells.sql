-- The cells of the tile pyramid that each transaction changed, see `naksha.model.geo.tile_cells`: a
-- JSON array in its log row. Null is the whole world: a change of the collection, a transaction
-- from before the cells were recorded, or an edit whose cells the library has not recorded yet.
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

-- The boxes that edits without the library changed, until the library records their cells in the
-- log; states without a geometry have none.
CREATE TABLE naksha_edited_box (
    txn   INTEGER NOT NULL,
    t     INTEGER NOT NULL,
    west  REAL,
    south REAL,
    east  REAL,
    north REAL
);
CREATE TRIGGER naksha_edited_boxes AFTER INSERT ON naksha_edited
BEGIN
    INSERT INTO naksha_edited_box (txn, t, west, south, east, north)
    VALUES (NEW.txn, NEW.t, NEW.west, NEW.south, NEW.east, NEW.north);
    INSERT INTO naksha_edited_box (txn, t, west, south, east, north)
    SELECT NEW.txn, NEW.t, h.west, h.south, h.east, h.north
      FROM naksha_head h
     WHERE h.n = NEW.n AND (h.west IS NOT NEW.west OR h.south IS NOT NEW.south
                            OR h.east IS NOT NEW.east OR h.north IS NOT NEW.north);
END;
