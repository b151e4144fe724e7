-- Edits in sqlite3, without the library; the triggers do the rest.
UPDATE naksha_storage SET app_id = 'sqlite3', author = 'dora';
UPDATE feature
   SET properties = json_set(properties, '$.name', 'Fire Station')
 WHERE collection = '{{collection}}' AND id = 'town-hall';
DELETE FROM feature WHERE collection = '{{collection}}' AND id = 'shop-1';
UPDATE naksha_storage SET author = NULL;
