-- The storage's own tables. Feature tables are created per collection (060).

-- `former` are the ids and numbers that the storage had before it was forked, oldest first; see
-- naksha_storage_fork and naksha.model.identity.storage_identity.
CREATE TABLE IF NOT EXISTS naksha_storage (
    singleton      bool PRIMARY KEY DEFAULT true CHECK (singleton),
    id             text NOT NULL,
    number         int8 NOT NULL CHECK (number BETWEEN 0 AND (1::int8 << 40) - 1),
    tx_log_days    int8 NOT NULL DEFAULT 36500,
    former         jsonb NOT NULL DEFAULT '[]'
);

CREATE SEQUENCE IF NOT EXISTS naksha_collection_number_seq AS int4 MAXVALUE 1048575 NO CYCLE;

-- The authoritative data of collections; the comment on the HEAD table is its public copy. `txn` is
-- the last change of the collection itself, `floor_txn` the oldest readable version, `off_since`
-- the transaction that switched history off (null while it is on). An overlay of a collection (065)
-- is a hidden collection: `base` is the id of the collection that it covers, `overlay` the number
-- of the overlay; the collection itself has null and 0. `created_txn` is 0 for collections older
-- than this column. A collection is removed at `delete_at` (0 = never); with `dropped_at` (0 =
-- live) it is hidden until then. `partitions` is the number of leaves of HEAD: 1, or 16 once it has
-- grown (122).
CREATE TABLE IF NOT EXISTS naksha_collection (
    id                      text COLLATE "C" PRIMARY KEY,
    number                  int4 NOT NULL UNIQUE DEFAULT nextval('naksha_collection_number_seq'),
    txn                     int8 NOT NULL,
    floor_txn               int8 NOT NULL DEFAULT 0,
    off_since               int8,
    max_age                 int8 NOT NULL DEFAULT 36500 CHECK (max_age >= 0),
    id_prefix               text,
    author                  text,
    optimal_partitioning    bool NOT NULL DEFAULT false,
    points_only             bool NOT NULL DEFAULT false,
    delete_at               int8 NOT NULL DEFAULT 0 CHECK (delete_at >= 0),
    estimated_feature_count int8 NOT NULL DEFAULT -1,
    byte_size               int8 NOT NULL DEFAULT -1,
    compressed_size         int8 NOT NULL DEFAULT -1,
    created_txn             int8 NOT NULL DEFAULT 0,
    overlay                 int4 NOT NULL DEFAULT 0,
    base                    text COLLATE "C",
    dropped_at              int8 NOT NULL DEFAULT 0,
    partitions              int4 NOT NULL DEFAULT 1 CHECK (partitions IN (1, 16))
);
DO $$
BEGIN
    IF to_regclass('naksha_collection_overlay') IS NULL THEN
        CREATE UNIQUE INDEX naksha_collection_overlay ON naksha_collection (base, overlay);
    END IF;
END $$;

-- Existing overlays; a dropped one has no row, a frozen one is not written to any more. Their
-- numbers are never reused.
CREATE SEQUENCE IF NOT EXISTS naksha_overlay_seq AS int4;
CREATE TABLE IF NOT EXISTS naksha_overlay (
    number int4 PRIMARY KEY,
    frozen bool NOT NULL DEFAULT false
);
-- Hidden collections have numbers above those of all others, which are part of state ids, and below
-- the numbers that lock bulk loads (110).
CREATE SEQUENCE IF NOT EXISTS naksha_hidden_number_seq AS int4
    MINVALUE 1048576 MAXVALUE 1073741000 NO CYCLE;

-- Removed collections: the number and the last `i` of the latest collection of each name, so that
-- neither they nor the state ids made of them are ever reused.
CREATE TABLE IF NOT EXISTS naksha_former (
    id     text COLLATE "C" PRIMARY KEY,
    number int4 NOT NULL,
    last_i int8 NOT NULL
);

-- Holds the last txn itself. Cache 1: a cached number would be drawn long before its lock.
CREATE SEQUENCE IF NOT EXISTS naksha_tx_object_id_seq AS int8 CACHE 1;
CREATE SEQUENCE IF NOT EXISTS naksha_tx_i_seq AS int8;

-- `cells` are the tile cells (015) of former and new geometries; null stands for all of the world.
CREATE TABLE IF NOT EXISTS naksha_tx (
    i          int8 NOT NULL DEFAULT nextval('naksha_tx_i_seq'),
    ts         timestamptz NOT NULL,
    psql_id    int8 NOT NULL DEFAULT pg_current_xact_id()::text::int8,
    seq_number int8,
    seq_ts     timestamptz,
    txn        int8 NOT NULL,
    action     text COLLATE "C" NOT NULL
               CHECK (action IN ('MODIFY_FEATURES', 'MODIFY_COLLECTION', 'MESSAGE')),
    id         text COLLATE "C" NOT NULL,
    app_id     text NOT NULL,
    author     text,
    msg_text   text,
    msg_json   jsonb,
    msg_binary bytea,
    created    int8 NOT NULL DEFAULT 0,
    updated    int8 NOT NULL DEFAULT 0,
    deleted    int8 NOT NULL DEFAULT 0,
    purged     int8 NOT NULL DEFAULT 0,
    bbox       geometry(Polygon, 4326),
    overlay    int4 NOT NULL DEFAULT 0,
    cells      int8[],
    PRIMARY KEY (txn, i),
    UNIQUE (txn, action, id)
) PARTITION BY RANGE (txn);
-- CREATE INDEX IF NOT EXISTS locks writers out before it looks.
DO $$
BEGIN
    IF to_regclass('naksha_tx_unpublished') IS NULL THEN
        CREATE INDEX naksha_tx_id_txn ON naksha_tx (id, txn);
        CREATE INDEX naksha_tx_bbox ON naksha_tx USING gist (bbox);
        CREATE INDEX naksha_tx_unpublished ON naksha_tx (txn) WHERE seq_number IS NULL;
        CREATE INDEX naksha_tx_author_txn ON naksha_tx (author, txn);
        CREATE INDEX naksha_tx_app_id_txn ON naksha_tx (app_id, txn);
        CREATE INDEX naksha_tx_overlay_txn ON naksha_tx (overlay, txn) WHERE overlay <> 0;
        CREATE INDEX naksha_tx_messages ON naksha_tx (txn) WHERE action = 'MESSAGE';
    END IF;
END $$;

-- Published versions: one row per transaction, so that a version is found without the log.
CREATE TABLE IF NOT EXISTS naksha_version (
    seq_number int8 PRIMARY KEY,
    txn        int8 NOT NULL UNIQUE,
    seq_ts     timestamptz NOT NULL
);
DO $$
BEGIN
    IF to_regclass('naksha_version_ts') IS NULL THEN
        CREATE INDEX naksha_version_ts ON naksha_version (seq_ts, seq_number);
    END IF;
END $$;

-- Tile cells of the log, folded (128): for each cell of a collection (its number) on main or on an
-- overlay, the last transaction that recorded the cell itself, and the last one that recorded a
-- cell below it. The row of collection 0 has the last folded transaction, and in `below` the first
-- known one, if the log had expired before.
CREATE TABLE IF NOT EXISTS naksha_cell (
    collection int4 NOT NULL,
    overlay    int4 NOT NULL,
    cell       int8 NOT NULL,
    own        int8 NOT NULL,
    below      int8 NOT NULL,
    PRIMARY KEY (collection, overlay, cell)
) WITH (fillfactor = 70);

-- Versions that must stay readable; collection null means all of them. A guarding pin also forbids
-- dropping the collections and switching their history off.
CREATE TABLE IF NOT EXISTS naksha_pin (
    name       text PRIMARY KEY,
    collection text COLLATE "C",
    txn        int8 NOT NULL,
    guards     bool NOT NULL DEFAULT false
);

-- Objects stored with the data: tags, branches, conflicts.
CREATE TABLE IF NOT EXISTS naksha_kept (
    kind     text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    value    jsonb NOT NULL,
    revision int8 NOT NULL,
    PRIMARY KEY (kind, id)
);

-- Completed migration steps, and the fingerprint of the schema files; see
-- naksha.psql.schema.install.
CREATE TABLE IF NOT EXISTS naksha_migration (
    name text PRIMARY KEY,
    at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
