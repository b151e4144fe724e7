-- A write compares the tombstones that it saw with those that it removes, by their numbers.
DROP FUNCTION IF EXISTS naksha_untomb(naksha_collection, int8, text[]);
DO $$
BEGIN
    IF to_regtype('naksha_written') IS NOT NULL THEN
        ALTER TYPE naksha_written ALTER ATTRIBUTE tombs TYPE int8[];
    END IF;
END $$;
