-- What tags, branches and open conflicts need. New files get it at once, files of the first schema
-- when they are opened: each file in this folder leads from one schema version to the next.

ALTER TABLE naksha_storage ADD COLUMN last_overlay INTEGER NOT NULL DEFAULT 0;

-- The transaction that made a collection; 0 for those that were there before this was kept.
ALTER TABLE naksha_collection ADD COLUMN created INTEGER NOT NULL DEFAULT 0;

-- The overlay that the transaction wrote to, 0 for none: then it wrote to main.
ALTER TABLE naksha_tx ADD COLUMN overlay INTEGER NOT NULL DEFAULT 0;
CREATE INDEX naksha_tx_overlay ON naksha_tx (overlay, txn) WHERE overlay <> 0;

-- Whether the pin also forbids to drop what it covers, and to switch its history off.
ALTER TABLE naksha_pin ADD COLUMN guards INTEGER NOT NULL DEFAULT 0;

-- Small objects beside the data.
CREATE TABLE naksha_kept (
    kind     TEXT NOT NULL,
    id       TEXT NOT NULL,
    value    TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;

-- Overlays that are in use. One that is not here is dropped, whatever is left of its tables; one
-- that is frozen is not written to any more.
CREATE TABLE naksha_overlay (
    number INTEGER PRIMARY KEY,
    frozen INTEGER NOT NULL DEFAULT 0
);

-- Collections that were written to in an overlay, by their numbers: those have tables of their own
-- there. `floor_txn` is the oldest transaction that these can be read at.
CREATE TABLE naksha_overlaid (
    collection INTEGER NOT NULL,
    overlay    INTEGER NOT NULL,
    floor_txn  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (collection, overlay)
) WITHOUT ROWID;
