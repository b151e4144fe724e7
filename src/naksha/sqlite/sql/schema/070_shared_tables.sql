-- One set of tables for all collections of a file. Each collection, and what each overlay has of
-- it, has a table number `t`, which is never used again. The upper bits of a row number `n` are the
-- table number, so that the rows of a collection lie together; the lower 40 bits count features in
-- HEAD and are the number of the state elsewhere.

ALTER TABLE naksha_storage ADD COLUMN last_table INTEGER NOT NULL DEFAULT 0;
ALTER TABLE naksha_collection ADD COLUMN t INTEGER NOT NULL DEFAULT 0;
ALTER TABLE naksha_overlaid ADD COLUMN t INTEGER NOT NULL DEFAULT 0;

-- Table numbers whose rows maintenance removes: of removed collections and dropped overlays.
CREATE TABLE naksha_trash (t INTEGER PRIMARY KEY);

-- Short columns come before long ones, so that a scan of a table reads only the former.
CREATE TABLE naksha_head (
    n          INTEGER PRIMARY KEY,
    t          INTEGER AS (n >> 40) STORED,
    i          INTEGER NOT NULL,
    id         TEXT NOT NULL,
    txn        INTEGER NOT NULL,
    ord        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    action     TEXT NOT NULL,
    author     TEXT,
    app_id     TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    qrid       TEXT,
    mrid       TEXT,
    west       REAL,
    south      REAL,
    east       REAL,
    north      REAL,
    geo        BLOB,
    geometry   TEXT,
    jsondata   TEXT NOT NULL
);
CREATE UNIQUE INDEX naksha_head_id ON naksha_head (t, id);
CREATE UNIQUE INDEX naksha_head_i ON naksha_head (t, i);
CREATE INDEX naksha_head_txn ON naksha_head (t, txn);
CREATE INDEX naksha_head_mrid ON naksha_head (t, mrid);
CREATE INDEX naksha_head_qrid ON naksha_head (t, qrid);
CREATE INDEX naksha_head_action ON naksha_head (t, action, author);
CREATE TABLE naksha_tag (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;
CREATE INDEX naksha_tag_n ON naksha_tag (n);

-- The trees hold 32-bit numbers: `t` is the interval [t, t + 0.5], which is exact below 2^22. An
-- interval of no length would give nodes of no volume, and the tree could not tell them apart.
CREATE VIRTUAL TABLE naksha_box USING rtree(n, west, east, south, north, t, t_end);

-- Tombstones are few to write and many to read: they stay until they are purged.
CREATE TABLE naksha_del (
    n          INTEGER PRIMARY KEY,
    t          INTEGER AS (n >> 40) STORED,
    i          INTEGER AS (n & 1099511627775) VIRTUAL,
    id         TEXT NOT NULL,
    txn        INTEGER NOT NULL,
    ord        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    action     TEXT NOT NULL,
    author     TEXT,
    app_id     TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    qrid       TEXT,
    mrid       TEXT,
    west       REAL,
    south      REAL,
    east       REAL,
    north      REAL,
    geo        BLOB,
    geometry   TEXT,
    jsondata   TEXT NOT NULL
);
CREATE UNIQUE INDEX naksha_del_id ON naksha_del (t, id);
CREATE INDEX naksha_del_txn ON naksha_del (t, txn);
CREATE INDEX naksha_del_mrid ON naksha_del (t, mrid);
CREATE INDEX naksha_del_qrid ON naksha_del (t, qrid);
CREATE INDEX naksha_del_action ON naksha_del (t, action, author);
CREATE VIRTUAL TABLE naksha_gone USING rtree(n, west, east, south, north, t, t_end);
CREATE TABLE naksha_gone_tag (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;
CREATE INDEX naksha_gone_tag_n ON naksha_gone_tag (n);
CREATE TRIGGER naksha_del_gone AFTER INSERT ON naksha_del
BEGIN
    INSERT INTO naksha_gone (n, west, east, south, north, t, t_end)
    SELECT NEW.n, NEW.west, NEW.east, NEW.south, NEW.north, NEW.n >> 40, (NEW.n >> 40) + 0.5
     WHERE NEW.west IS NOT NULL;
    INSERT INTO naksha_gone_tag (tag, n)
    SELECT DISTINCT t.value, NEW.n
      FROM json_each(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags') t;
END;
CREATE TRIGGER naksha_del_back AFTER DELETE ON naksha_del
BEGIN
    DELETE FROM naksha_gone WHERE n = OLD.n;
    DELETE FROM naksha_gone_tag WHERE n = OLD.n;
END;

-- A state comes to the history once. The document is as it was while the state was valid; what
-- ended it is only in the column.
CREATE TABLE naksha_hst (
    n          INTEGER PRIMARY KEY,
    t          INTEGER AS (n >> 40) STORED,
    i          INTEGER AS (n & 1099511627775) VIRTUAL,
    id         TEXT NOT NULL,
    txn        INTEGER NOT NULL,
    txn_next   INTEGER NOT NULL,
    ord        INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    action     TEXT NOT NULL,
    author     TEXT,
    app_id     TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    qrid       TEXT,
    mrid       TEXT,
    west       REAL,
    south      REAL,
    east       REAL,
    north      REAL,
    geo        BLOB,
    geometry   TEXT,
    jsondata   TEXT NOT NULL
);
CREATE INDEX naksha_hst_id ON naksha_hst (t, id, txn_next, txn);
CREATE INDEX naksha_hst_next ON naksha_hst (t, txn_next);
CREATE INDEX naksha_hst_txn ON naksha_hst (t, txn);
CREATE INDEX naksha_hst_mrid ON naksha_hst (t, mrid, txn_next);
CREATE INDEX naksha_hst_qrid ON naksha_hst (t, qrid, txn_next);
CREATE INDEX naksha_hst_action ON naksha_hst (t, action, author, txn_next);
CREATE VIRTUAL TABLE naksha_past
    USING rtree(n, west, east, south, north, t, t_end, since, until);
CREATE TABLE naksha_past_tag (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;
CREATE INDEX naksha_past_tag_n ON naksha_past_tag (n);

CREATE TABLE naksha_meta (t INTEGER, id TEXT, jsondata TEXT NOT NULL, PRIMARY KEY (t, id));

-- The ids that were ever touched in an overlay: of these nothing is taken from below any more. The
-- history cannot tell, since it expires.
CREATE TABLE naksha_ids (t INTEGER, id TEXT, PRIMARY KEY (t, id)) WITHOUT ROWID;
