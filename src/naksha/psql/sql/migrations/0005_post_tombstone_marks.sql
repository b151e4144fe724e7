-- Tombstones may have marks; the function without that parameter is not called any more.
DROP FUNCTION IF EXISTS naksha_tombs_sql(naksha_collection, text);
