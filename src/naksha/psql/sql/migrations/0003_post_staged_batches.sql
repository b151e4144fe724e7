-- Batches of what is staged have a limit in bytes, too; the function that does not know it is of no
-- more use.
DROP FUNCTION IF EXISTS naksha_staged_put(text, text, text[], int2[], int);
