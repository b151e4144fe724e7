-- The two tables of the catalog. Texts are compared byte by byte, which is SQLite's default.

-- Pointers: realm, name, target, created, epoch, previous.
CREATE TABLE p (
    r TEXT NOT NULL,
    n TEXT NOT NULL,
    t BLOB NOT NULL,
    c INTEGER NOT NULL,
    e INTEGER NOT NULL,
    v BLOB NOT NULL,
    PRIMARY KEY (r, n)
) STRICT, WITHOUT ROWID;

-- Objects: realm, id, part, parts, type, created_us, token, value. The value comes last, so that
-- no read has to skip it; rows are too large to be kept in the key's own tree.
CREATE TABLE o (
    r TEXT NOT NULL,
    i INTEGER NOT NULL,
    a INTEGER NOT NULL,
    k INTEGER NOT NULL,
    y TEXT NOT NULL,
    c INTEGER NOT NULL,
    x TEXT,
    v BLOB NOT NULL,
    PRIMARY KEY (r, i, a)
) STRICT;
