-- Collections that are there have sixteen leaves, overlays one; new ones have one at first.

-- PostgreSQL 15.20 (and its like) adds no column to a table whose row type the parsed body of a
-- function uses. The schema files make these functions again, in the same transaction.
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY(
        SELECT p.oid::regprocedure::text FROM pg_proc p, pg_class k
         WHERE k.oid = 'naksha_collection'::regclass AND p.prosqlbody IS NOT NULL
           AND p.pronamespace = k.relnamespace AND k.reltype = ANY (p.proargtypes)) LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS %s CASCADE', name);
    END LOOP;
END $$;
ALTER TABLE naksha_collection ADD COLUMN IF NOT EXISTS
    partitions int4 NOT NULL DEFAULT 16 CHECK (partitions IN (1, 16));
ALTER TABLE naksha_collection ALTER COLUMN partitions SET DEFAULT 1;
-- The table is guarded: by the first setting in older releases, by the second since then.
SET LOCAL naksha.managed = 'on';
SET LOCAL naksha.depth = '0';
UPDATE naksha_collection SET partitions = 1 WHERE overlay <> 0;
SET LOCAL naksha.managed = '';
SET LOCAL naksha.depth = '';
