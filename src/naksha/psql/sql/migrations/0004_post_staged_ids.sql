-- The database finds the deletions of a branch itself; no caller reads all staged ids any more.
DROP FUNCTION IF EXISTS naksha_staged_ids(text[], text[]);
