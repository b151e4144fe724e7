-- The tables of a collection are made with a number of leaves.
DROP FUNCTION IF EXISTS naksha_create_tables(text, int, bool);
