-- A dropped collection has a mark of its own; `delete_at` of a live one schedules its removal.
-- Until now every collection with a time to delete it was dropped.

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
ALTER TABLE naksha_collection ADD COLUMN IF NOT EXISTS dropped_at int8 NOT NULL DEFAULT 0;
-- The table is guarded: by the first setting in older releases, by the second since then.
SET LOCAL naksha.managed = 'on';
SET LOCAL naksha.depth = '0';
UPDATE naksha_collection AS c SET dropped_at = coalesce(
           (SELECT floor(extract(epoch FROM max(t.ts)) * 1000)::int8 FROM naksha_tx t
             WHERE t.txn = c.txn), 1)
 WHERE delete_at <> 0;
SET LOCAL naksha.managed = '';
SET LOCAL naksha.depth = '';
