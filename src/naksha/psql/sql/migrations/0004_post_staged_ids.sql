-- What is deleted on a branch is found in the database; nobody asks for all staged ids any more.
DROP FUNCTION IF EXISTS naksha_staged_ids(text[], text[]);
