-- States without their content; see naksha.sqlite.read.id_queries.

-- name: select_found
SELECT f.id, f.uuid{{geo}}{{values}} FROM ({{sources}}) AS f
 WHERE {{behind}} ORDER BY {{keys}}f.id {{limit}}

-- name: source_found
SELECT s.id, json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid') AS uuid,
       s.geo{{columns}} FROM {{from_}} WHERE {{conditions}}

-- name: source_found_page
-- Uses the index on ids.
SELECT * FROM (SELECT s.id, s.geo,
       json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid') AS uuid
  FROM {{from_}} WHERE {{conditions}} ORDER BY s.id {{limit}})

-- name: found_after
s.id > {{id}}

-- name: found_after_id
f.id > {{id}}

-- name: sort_column
, json_type({{document}}, {{path}}) AS kind{{n}}, json_extract({{document}}, {{path}}) AS value{{n}}

-- name: sort_document
s.jsondata

-- name: sort_member
naksha_member(CAST(s.jsondata AS BLOB), {{path}})

-- name: sort_given
, f.kind{{n}}, f.value{{n}}

-- name: sort_by
-- Nested values are all equal; other values of the same rank are compared as they are.
{{rank}}, CASE WHEN f.kind{{n}} NOT IN ('array', 'object') THEN f.value{{n}} END {{direction}},

-- name: sort_rank
CASE f.kind{{n}} WHEN 'integer' THEN 0 WHEN 'real' THEN 0 WHEN 'text' THEN 1 WHEN 'false' THEN 2
                 WHEN 'true' THEN 2 WHEN 'array' THEN 3 WHEN 'object' THEN 3 ELSE 4 END

-- name: sort_rank_descending
CASE f.kind{{n}} WHEN 'integer' THEN 3 WHEN 'real' THEN 3 WHEN 'text' THEN 2 WHEN 'false' THEN 1
                 WHEN 'true' THEN 1 WHEN 'array' THEN 0 WHEN 'object' THEN 0 ELSE 4 END

-- name: sort_number
f.value{{n}}

-- name: sort_text
f.value{{n}}

-- name: behind_rank
({{rank}} > {{then}} OR ({{rank}} = {{then}} AND {{rest}}))

-- name: behind_value
({{value}} {{operator}} {{then}} OR ({{value}} = {{then}} AND {{rest}}))
