-- The tables of a storage; one file is one storage.

-- One row. `app_id` and `author` sign what is written without the library.
CREATE TABLE naksha_storage (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    id              TEXT NOT NULL,
    number          INTEGER NOT NULL,
    app_id          TEXT NOT NULL DEFAULT 'sqlite3' CHECK (app_id <> ''),
    author          TEXT,
    tx_log_days     INTEGER NOT NULL DEFAULT 36500,
    last_collection INTEGER NOT NULL DEFAULT 0,
    last_txn        INTEGER NOT NULL DEFAULT 0,
    last_ord        INTEGER NOT NULL DEFAULT 0
);

-- One row. `managed` is 1 while the library writes, or a trigger does its work: then the triggers
-- stand aside. The rest is about the statement that the triggers see: its time is the same for all
-- of its rows, and nothing else can have changed the connection's count of changes meanwhile.
CREATE TABLE naksha_shell (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    managed INTEGER NOT NULL DEFAULT 0,
    stamp   REAL NOT NULL DEFAULT 0,
    changes INTEGER NOT NULL DEFAULT -1,
    txn     INTEGER NOT NULL DEFAULT 0,
    ord     INTEGER NOT NULL DEFAULT 0,
    now_ms  INTEGER NOT NULL DEFAULT 0
);
INSERT INTO naksha_shell (one) VALUES (1);

-- `next_i` numbers the states of a collection, `off_since` is the transaction that switched its
-- history off, `floor_txn` the oldest one that it can be read at.
CREATE TABLE naksha_collection (
    id                      TEXT PRIMARY KEY,
    number                  INTEGER NOT NULL UNIQUE,
    txn                     INTEGER NOT NULL,
    floor_txn               INTEGER NOT NULL DEFAULT 0,
    off_since               INTEGER,
    next_i                  INTEGER NOT NULL DEFAULT 1,
    max_age                 INTEGER NOT NULL,
    id_prefix               TEXT,
    author                  TEXT,
    optimal_partitioning    INTEGER NOT NULL,
    points_only             INTEGER NOT NULL,
    delete_at               INTEGER NOT NULL DEFAULT 0,
    estimated_feature_count INTEGER NOT NULL DEFAULT -1,
    byte_size               INTEGER NOT NULL DEFAULT -1,
    compressed_size         INTEGER NOT NULL DEFAULT -1
) WITHOUT ROWID;

-- Where the numbering of states goes on when a removed collection is created again.
CREATE TABLE naksha_removed (
    id     TEXT PRIMARY KEY,
    next_i INTEGER NOT NULL
) WITHOUT ROWID;

-- The log. `ord` counts transactions in the order of their numbers: what the trees can hold.
CREATE TABLE naksha_tx (
    i          INTEGER PRIMARY KEY,
    ts         INTEGER NOT NULL,
    seq_number INTEGER,
    seq_ts     INTEGER,
    txn        INTEGER NOT NULL,
    ord        INTEGER NOT NULL,
    action     TEXT NOT NULL
               CHECK (action IN ('MODIFY_FEATURES', 'MODIFY_COLLECTION', 'MESSAGE')),
    id         TEXT NOT NULL,
    app_id     TEXT NOT NULL,
    author     TEXT,
    msg_text   TEXT,
    msg_json   TEXT,
    msg_binary BLOB,
    created    INTEGER NOT NULL DEFAULT 0,
    updated    INTEGER NOT NULL DEFAULT 0,
    deleted    INTEGER NOT NULL DEFAULT 0,
    purged     INTEGER NOT NULL DEFAULT 0,
    west       REAL,
    south      REAL,
    east       REAL,
    north      REAL,
    UNIQUE (txn, action, id)
);
CREATE INDEX naksha_tx_id_txn ON naksha_tx (id, action, txn);
CREATE INDEX naksha_tx_unpublished ON naksha_tx (txn) WHERE seq_number IS NULL;

-- What is published: one row per transaction.
CREATE TABLE naksha_version (
    seq_number INTEGER PRIMARY KEY,
    txn        INTEGER NOT NULL UNIQUE,
    seq_ts     INTEGER NOT NULL,
    ord        INTEGER NOT NULL
);
CREATE INDEX naksha_version_ts ON naksha_version (seq_ts, seq_number);

-- Versions that must stay readable; collection null means all of them.
CREATE TABLE naksha_pin (
    name       TEXT PRIMARY KEY,
    collection TEXT,
    txn        INTEGER NOT NULL
) WITHOUT ROWID;
