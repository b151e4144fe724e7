-- Writes hand over the version of a collection that they have resolved: some functions get a
-- parameter with a default, so the ones without it must go, and with them what calls them.
DROP FUNCTION IF EXISTS naksha_open_main(text);
DROP FUNCTION IF EXISTS naksha_open(text);
DROP FUNCTION IF EXISTS naksha_purge(text, text[]);
DROP FUNCTION IF EXISTS naksha_purge(text, int[], text[]);
