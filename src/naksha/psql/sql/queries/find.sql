-- States without their content; see naksha.psql.read.id_queries.

-- name: select_found
SELECT s.id, s.uuid FROM ({{sources}}) AS s {{order}}

-- name: select_found_sorted
-- A top-N heap sort; `OFFSET 0` keeps the sort keys from being extracted from the documents again
-- at each use.
SELECT s.id, s.uuid{{values}} FROM (SELECT * FROM ({{sources}}) AS s OFFSET 0) AS s
 WHERE {{behind}} ORDER BY {{keys}}s.id USING ~<~ {{limit}}

-- name: source_found
SELECT jsondata->>'id' AS id, naksha_xyz(jsondata)->>'uuid' AS uuid{{columns}}
  FROM {{table}} WHERE {{conditions}}

-- name: source_found_page
-- Along the index on ids.
(SELECT jsondata->>'id' AS id, naksha_xyz(jsondata)->>'uuid' AS uuid
  FROM {{table}} WHERE {{conditions}} ORDER BY jsondata->>'id' USING ~<~ {{limit}})

-- name: found_order
ORDER BY s.id USING ~<~ {{limit}}

-- name: found_after
jsondata->>'id' ~>~ {{id}}

-- name: found_after_id
s.id ~>~ {{id}}

-- name: sort_column
, {{path}} AS v{{n}}

-- name: sort_given
-- As JSON; all nested values are equal.
, CASE jsonb_typeof(s.v{{n}}) WHEN 'object' THEN '[]' WHEN 'array' THEN '[]' ELSE s.v{{n}}::text END

-- name: sort_by
{{rank}}, {{number}} {{direction}}, {{text}} {{direction}},

-- name: sort_rank
CASE jsonb_typeof(s.v{{n}}) WHEN 'number' THEN 0 WHEN 'string' THEN 1 WHEN 'boolean' THEN 2
                            WHEN 'array' THEN 3 WHEN 'object' THEN 3 ELSE 4 END

-- name: sort_rank_descending
CASE jsonb_typeof(s.v{{n}}) WHEN 'number' THEN 3 WHEN 'string' THEN 2 WHEN 'boolean' THEN 1
                            WHEN 'array' THEN 0 WHEN 'object' THEN 0 ELSE 4 END

-- name: sort_number
CASE jsonb_typeof(s.v{{n}}) WHEN 'number' THEN s.v{{n}}::numeric
                            WHEN 'boolean' THEN s.v{{n}}::bool::int4::numeric END

-- name: sort_text
CASE jsonb_typeof(s.v{{n}}) WHEN 'string' THEN s.v{{n}} #>> '{}' END COLLATE "C"

-- name: behind_rank
({{rank}} > {{then}} OR ({{rank}} = {{then}} AND {{rest}}))

-- name: behind_value
({{value}} {{operator}} {{then}} OR ({{value}} = {{then}} AND {{rest}}))
