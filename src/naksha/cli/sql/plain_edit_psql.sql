-- An edit typed into psql without the library; the triggers do the rest.
SET search_path = {{schema}}, public;
BEGIN;
SELECT naksha_tx_start('psql', 'dora');
SELECT naksha_tx_message('why', 'The fire station moves into the town hall');
UPDATE {{collection}}
   SET jsondata = jsonb_set(jsondata, '{properties,name}', '"Fire Station"')
 WHERE jsondata->>'id' = 'town-hall';
DELETE FROM {{collection}} WHERE jsondata->>'id' = 'shop-1';
COMMIT;
