-- The log records the tile cells that transactions change. Rows without them are read as changes of
-- the whole world.

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
    IF NOT EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = (SELECT t.typrelid FROM pg_type t
                                         WHERE t.oid = to_regtype('naksha_written'))
                      AND a.attname = 'corners') THEN
        ALTER TYPE naksha_written ADD ATTRIBUTE corners int8[];
    END IF;
END $$;
ALTER TABLE naksha_tx ADD COLUMN IF NOT EXISTS cells int8[];

-- With one more parameter they would be second functions; a call without it takes its default.
DROP FUNCTION IF EXISTS naksha_tx_log(text, text, int8, int8, int8, int8, geometry);
DROP FUNCTION IF EXISTS
    naksha_tx_count(naksha_collection, int8, int8, int8, int8, geometry);
DROP FUNCTION IF EXISTS
    naksha_after_write(naksha_collection, int8, int8, int8, int8, geometry);
DROP FUNCTION IF EXISTS naksha_bulk_finish(text, int, int8, int8, geometry);
-- With one more column in its result it has to be made again.
DROP FUNCTION IF EXISTS naksha_staged_index(int, text, bool);
