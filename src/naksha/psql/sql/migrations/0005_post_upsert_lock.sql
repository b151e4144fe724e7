-- naksha_upsert has a fourth parameter, `lock`; with the old function beside it every call would be
-- ambiguous.
DROP FUNCTION IF EXISTS naksha_upsert(text, jsonb, geometry);
