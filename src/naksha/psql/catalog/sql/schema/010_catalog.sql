-- The two tables of the catalog, and the version of their layout. Texts are compared and ordered
-- byte by byte, whatever the collation of the database.

CREATE SCHEMA IF NOT EXISTS {{schema}};

CREATE TABLE IF NOT EXISTS {{schema}}.catalog_version (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    version int4 NOT NULL
);

-- Pointers: realm, name, target, created, epoch, previous. They are updated in place frequently:
-- half of each page is left free, so that no index entry changes with them.
CREATE TABLE IF NOT EXISTS {{schema}}.p (
    r text COLLATE "C" NOT NULL,
    n text COLLATE "C" NOT NULL,
    t bytea NOT NULL,
    c int8 NOT NULL,
    e int8 NOT NULL,
    v bytea NOT NULL,
    PRIMARY KEY (r, n)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

-- Objects: realm, id, part, parts, type, created_us, token, value.
CREATE TABLE IF NOT EXISTS {{schema}}.o (
    r text COLLATE "C" NOT NULL,
    i int8 NOT NULL,
    a int4 NOT NULL,
    k int4 NOT NULL,
    y text COLLATE "C" NOT NULL,
    c int8 NOT NULL,
    x text COLLATE "C",
    v bytea NOT NULL,
    PRIMARY KEY (r, i, a)
);

-- Values are already compressed; compressing them again only costs time.
ALTER TABLE {{schema}}.o ALTER COLUMN v SET STORAGE EXTERNAL;
