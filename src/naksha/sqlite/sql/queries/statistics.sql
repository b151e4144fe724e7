-- Statistics of a collection; see naksha.sqlite.read.statistics.

-- name: source_measured
SELECT {{document}} AS document, {{geometry}} AS geometry, s.west, s.south, s.east, s.north
  FROM {{from_}} WHERE {{conditions}}

-- name: sampled
-- Looks up a sample of states by their numbers.
s.i IN (SELECT value FROM json_each({{numbers}}))

-- name: select_types
-- Features grouped by geometry type, null for those without geometry.
SELECT json_extract(f.geometry, '$.type'), count(*),
       sum(length(CAST(f.document AS BLOB)) + coalesce(length(CAST(f.geometry AS BLOB)), 4) + 12),
       min(f.west), min(f.south), max(f.east), max(f.north)
  FROM ({{sources}}) AS f GROUP BY 1

-- name: select_keys
SELECT p.key, count(*) FROM ({{sources}}) AS f, json_each(f.document, '$.properties') AS p
 WHERE p.key <> '@ns:com:here:xyz' GROUP BY p.key ORDER BY count(*) DESC, p.key LIMIT {{most}}

-- name: select_tags
SELECT t.value, count(*)
  FROM ({{sources}}) AS f,
       json_each(f.document, '$.properties."@ns:com:here:xyz".tags') AS t
 GROUP BY t.value ORDER BY count(*) DESC, t.value LIMIT {{most}}
