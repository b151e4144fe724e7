-- Branches, pins that guard, kept objects and filters of the log. Nothing here rewrites a table.

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
ALTER TABLE naksha_collection
    ADD COLUMN IF NOT EXISTS created_txn int8 NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS overlay int4 NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS base text COLLATE "C";

ALTER TABLE naksha_pin ADD COLUMN IF NOT EXISTS guards bool NOT NULL DEFAULT false;
-- With one more parameter it would be a second function, and a call that fits both is refused.
DROP FUNCTION IF EXISTS naksha_pin_set(text, int8, text);
DROP FUNCTION IF EXISTS naksha_last_purge(text, int8);

-- Merged parts of the log that are not brought in yet lack the column; they are made again.
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT k.relname FROM pg_class k
                 WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                   AND k.relkind = 'r'
                   AND NOT k.relispartition AND k.relname LIKE 'naksha\_tx\_new\_%' LOOP
        EXECUTE format('DROP TABLE %I', name);
    END LOOP;
END $$;
ALTER TABLE naksha_tx ADD COLUMN IF NOT EXISTS overlay int4 NOT NULL DEFAULT 0;
