-- Statements are prepared with a limit (045), and states copied from a layer below table by table
-- (065).
DROP FUNCTION IF EXISTS naksha_prepare(text, text, text);
DROP FUNCTION IF EXISTS naksha_copy_sql(naksha_collection, naksha_collection);
DROP FUNCTION IF EXISTS naksha_history_parts(text);
