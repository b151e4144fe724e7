-- What somebody without the library types into sqlite3; the triggers do the rest.
UPDATE naksha_storage SET app_id = 'sqlite3', author = 'dora';
UPDATE {{collection}}
   SET jsondata = json_set(jsondata, '$.properties.name', 'Fire Station')
 WHERE id = 'town-hall';
DELETE FROM {{collection}} WHERE id = 'shop-1';
UPDATE naksha_storage SET author = NULL;
