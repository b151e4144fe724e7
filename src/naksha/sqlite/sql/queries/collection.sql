-- The tables of one collection. `head`, `del`, `hst` and `meta` are named as in the reference
-- layout; what only serves as an index of theirs has the collection's number in its name.

-- name: state_columns
i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version, action, author, app_id,
updated_at, qrid, mrid

-- name: state_column_types
-- What is asked for comes before what is long: who reads a table to the end looks at it only.
i          INTEGER UNIQUE,
id         TEXT UNIQUE,
txn        INTEGER,
ord        INTEGER,
version    INTEGER,
action     TEXT,
author     TEXT,
app_id     TEXT,
updated_at INTEGER,
qrid       TEXT,
mrid       TEXT,
west       REAL,
south      REAL,
east       REAL,
north      REAL,
geo        BLOB,
geometry   TEXT,
jsondata   TEXT NOT NULL

-- name: create_tables
-- `n` is the number of the feature, which stays; `i` is the number of the state.
CREATE TABLE {{head}} (n INTEGER PRIMARY KEY, {{column_types}});
CREATE VIRTUAL TABLE {{box}} USING rtree(n, west, east, south, north);
CREATE TABLE {{tag}} (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;

CREATE TABLE {{del}} (n INTEGER PRIMARY KEY, {{column_types}});

-- In the history `i` is the key: a state comes here once. The document is as it was while the state
-- was valid; what ended it is only in the column.
CREATE TABLE {{hst}} (
i          INTEGER PRIMARY KEY,
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
CREATE VIRTUAL TABLE {{past}} USING rtree(i, west, east, south, north, since, until);
CREATE TABLE {{past_tag}} (tag TEXT, i INTEGER, PRIMARY KEY (tag, i)) WITHOUT ROWID;

CREATE TABLE {{meta}} (id TEXT PRIMARY KEY, jsondata TEXT NOT NULL);

-- name: create_tombstone_indices
-- Tombstones are few to write and many to read: they stay until they are purged. So the tables keep
-- their indices by themselves, whoever writes.
CREATE INDEX {{del_}}mrid ON {{del}} (mrid);
CREATE INDEX {{del_}}qrid ON {{del}} (qrid);
CREATE INDEX {{del_}}action ON {{del}} (action, author);
CREATE VIRTUAL TABLE {{gone}} USING rtree(n, west, east, south, north);
CREATE TABLE {{gone_tag}} (tag TEXT, n INTEGER, PRIMARY KEY (tag, n)) WITHOUT ROWID;
CREATE INDEX {{gone_tag_}}n ON {{gone_tag}} (n);
CREATE TRIGGER {{del_}}gone AFTER INSERT ON {{del}}
BEGIN
    INSERT INTO {{gone}} (n, west, east, south, north)
    SELECT NEW.n, NEW.west, NEW.east, NEW.south, NEW.north WHERE NEW.west IS NOT NULL;
    INSERT INTO {{gone_tag}} (tag, n)
    SELECT DISTINCT t.value, NEW.n
      FROM json_each(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags') t;
END;
CREATE TRIGGER {{del_}}back AFTER DELETE ON {{del}}
BEGIN
    DELETE FROM {{gone}} WHERE n = OLD.n;
    DELETE FROM {{gone_tag}} WHERE n = OLD.n;
END;

-- name: fill_tombstone_indices
INSERT INTO {{gone}} (n, west, east, south, north)
SELECT n, west, east, south, north FROM {{del}} WHERE west IS NOT NULL;
INSERT INTO {{gone_tag}} (tag, n)
SELECT DISTINCT t.value, d.n
  FROM {{del}} d, json_each(d.jsondata, '$.properties."@ns:com:here:xyz".tags') t;

-- name: all_tables
-- Collections on main and in overlays, with the numbers of these.
SELECT c.*, 0 FROM naksha_collection c
UNION ALL
SELECT c.*, k.overlay FROM naksha_overlaid k JOIN naksha_collection c ON c.number = k.collection

-- name: create_indices
CREATE INDEX {{head_}}txn ON {{head}} (txn);
CREATE INDEX {{head_}}mrid ON {{head}} (mrid);
CREATE INDEX {{head_}}qrid ON {{head}} (qrid);
CREATE INDEX {{head_}}action ON {{head}} (action, author);
CREATE INDEX {{tag_}}n ON {{tag}} (n);
CREATE INDEX {{del_}}txn ON {{del}} (txn);
CREATE INDEX {{hst_}}id ON {{hst}} (id, txn_next, txn);
CREATE INDEX {{hst_}}next ON {{hst}} (txn_next);
CREATE INDEX {{hst_}}txn ON {{hst}} (txn);
CREATE INDEX {{hst_}}mrid ON {{hst}} (mrid, txn_next);
CREATE INDEX {{hst_}}qrid ON {{hst}} (qrid, txn_next);
CREATE INDEX {{hst_}}action ON {{hst}} (action, author, txn_next);
CREATE INDEX {{past_tag_}}i ON {{past_tag}} (i);

-- name: drop_indices
DROP INDEX {{head_}}txn;
DROP INDEX {{head_}}mrid;
DROP INDEX {{head_}}qrid;
DROP INDEX {{head_}}action;
DROP INDEX {{tag_}}n;
DROP INDEX {{del_}}txn;
DROP INDEX {{hst_}}id;
DROP INDEX {{hst_}}next;
DROP INDEX {{hst_}}txn;
DROP INDEX {{hst_}}mrid;
DROP INDEX {{hst_}}qrid;
DROP INDEX {{hst_}}action;
DROP INDEX {{past_tag_}}i;

-- name: drop_tables
DROP TABLE {{head}};
DROP TABLE {{box}};
DROP TABLE {{tag}};
DROP TABLE {{del}};
DROP TABLE {{gone}};
DROP TABLE {{gone_tag}};
DROP TABLE {{hst}};
DROP TABLE {{past}};
DROP TABLE {{past_tag}};
DROP TABLE {{meta}};

-- name: guard_drop
DROP TRIGGER IF EXISTS {{trigger}}

-- name: guard
-- Direct writes to what only the storage may write are refused.
CREATE TRIGGER {{trigger}} BEFORE {{operation}} ON {{table}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    SELECT RAISE(ABORT, {{message}});
END
