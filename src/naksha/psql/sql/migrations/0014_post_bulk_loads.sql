-- All loads are staged in parts.
DROP FUNCTION IF EXISTS naksha_stage_create(int, text);
DROP FUNCTION IF EXISTS naksha_stage_leaf(int, text, int8, text, text, bool);
DROP FUNCTION IF EXISTS naksha_stage_fill(int, text, int8, text, text, bool);
DROP FUNCTION IF EXISTS naksha_stage_index(int, text, bool);
DROP FUNCTION IF EXISTS naksha_stage_last_wins(int, text);
