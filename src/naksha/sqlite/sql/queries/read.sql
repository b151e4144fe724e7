-- Fragments from which `naksha.sqlite.read.statements` and `printer` build queries.

-- name: select_states
SELECT f.id, f.feature{{geo}} FROM ({{sources}}) AS f {{order}}

-- name: select_count
SELECT count(*) FROM ({{sources}}) AS f

-- name: geo_also
, f.geo

-- name: source
SELECT s.id, s.txn, {{feature}} AS feature, s.geo FROM {{from_}} WHERE {{conditions}}

-- name: source_page
-- The limit is applied in every source, in the order of its index on ids, so that a page reads only
-- its own rows.
SELECT * FROM (SELECT s.id, s.txn, {{feature}} AS feature, s.geo
  FROM {{from_}} WHERE {{conditions}} ORDER BY s.id, s.txn {{limit}})

-- name: limit
LIMIT {{limit}}

-- name: order_page
ORDER BY f.id, f.txn {{limit}}

-- name: geometry
-- The stored text, or null with a damage mark (`naksha.model.damage`) if it does not begin and end
-- like those that the library writes. Parsing every text would make reads up to 50 % slower.
CASE WHEN s.geometry GLOB '{"type":"[GLMP]*}' THEN s.geometry
     WHEN s.geometry IS NULL THEN 'null'
     ELSE {{broken}} END

-- name: geometry_readable
s.geometry GLOB '{"type":"[GLMP]*}' AND json_valid(s.geometry)

-- name: geometry_or_null
(CASE WHEN {{readable}} THEN s.geometry END)

-- name: feature
-- substr on bytes does not have to count characters. SQLite copies a text at each `||`; the
-- parentheses avoid copying the geometry once more to append the comma.
CAST('{"geometry":' || {{geometry}} || (',' || substr(CAST(s.jsondata AS BLOB), 2)) AS BLOB)

-- name: feature_closed
-- A state of the history with its end, unless it ended after the version.
CAST('{"geometry":' || {{geometry}} || (',' || substr(
    CASE WHEN s.txn_next <= {{at}} THEN json_set(s.jsondata,
        '$.properties."@ns:com:here:xyz".txn_next', CAST(s.txn_next AS TEXT))
    ELSE s.jsondata END, 2)) AS BLOB)

-- name: feature_in_space
-- The two forms above with the space's name in the namespace. The library writes the namespace as
-- the first property; if no other object begins before it, it is found without parsing the
-- document. `place` and the searched document are bytes; X'7B' is an opening brace.
CASE WHEN instr(substr({{bytes}}, 2, instr({{bytes}}, {{place}}) - 2), X'7B') = 0
     THEN CAST('{"geometry":' || {{geometry}} || ','
               || substr({{bytes}}, 2, instr({{bytes}}, {{place}}) + length({{place}}) - 2)
               || {{splice}}
               || substr({{bytes}}, instr({{bytes}}, {{place}}) + length({{place}})) AS BLOB)
     ELSE CAST('{"geometry":' || {{geometry}} || ',' || substr(json_set(
        {{document}}, '$.properties."@ns:com:here:xyz".space', {{space}}), 2) AS BLOB) END

-- name: bytes
CAST({{document}} AS BLOB)

-- name: from_table
{{table}} AS s

-- name: within
-- All rows of a collection, through the primary key.
s.n BETWEEN {{t}} << 40 AND (({{t}} + 1) << 40) - 1

-- name: of_table
-- Rows of a collection through an index.
s.t = {{t}}

-- name: from_box
-- First the R*Tree, whose boxes are float32 rounded outward, then the rows.
{{tree}} AS b CROSS JOIN {{table}} AS s ON s.n = b.n

-- name: begun
true

-- name: begun_at
-- Avoids the index on txn: most rows of HEAD match, and the index has them in another order.
+s.txn <= {{at}}

-- name: valid_live_at
-- Avoids the index on txn: typically half of the history or more is older than a version.
+s.txn <= {{at}} AND s.txn_next > {{at}} AND s.action <> 'DELETE'

-- name: live_past_at
-- The R*Tree has ordinals of transactions, rounded outward; its results are tested exactly.
+s.txn <= {{at}} AND +s.txn_next > {{at}} AND +s.action <> 'DELETE'

-- name: tree_at
b.since <= {{ord}} AND b.until >= {{ord}}

-- name: tree_begun_at
b.since <= {{ord}}

-- name: ord_at
(SELECT ord FROM naksha_version WHERE txn <= {{at}} ORDER BY txn DESC LIMIT 1)

-- name: valid_deleted_at
s.action = 'DELETE' AND +s.txn <= {{at}} AND s.txn_next > {{at}}

-- name: visible
s.txn < s.txn_next

-- name: visible_at
s.txn < s.txn_next AND +s.txn <= {{at}}

-- name: replaced
-- States that were valid at a transaction and have ended since, through the index on txn_next.
+s.txn <= {{since}} AND s.txn_next > {{since}}

-- name: hst_live
s.action <> 'DELETE'

-- name: hst_deleted
+s.action = 'DELETE'

-- name: visible_live
-- All history states that the R*Tree has; the spatial condition selects among them.
+s.txn < s.txn_next AND +s.action <> 'DELETE'

-- name: visible_live_at
+s.txn < s.txn_next AND +s.action <> 'DELETE' AND +s.txn <= {{at}}

-- name: visible_deleted
s.action = 'DELETE' AND +s.txn < s.txn_next

-- name: visible_deleted_at
s.action = 'DELETE' AND +s.txn < s.txn_next AND +s.txn <= {{at}}

-- name: in_past
-- SQLite sorts the list of an IN, so that the table is read in the order of its primary key.
s.n IN (SELECT b.n FROM naksha_past b WHERE {{tree}})

-- name: after_cursor
s.id >= {{id}} AND (s.id > {{id}} OR s.txn > {{txn}})

-- name: ids
s.id IN (SELECT value FROM json_each({{ids}}))

-- name: part
-- The index on ids covers this condition, so documents of other parts are not read.
naksha_id_hash(CAST(s.id AS BLOB)) BETWEEN {{first}} AND {{last}}

-- name: tree_table
-- The R*Tree tests conditions in the given order, so the most selective ones come first.
b.t <= {{t}} AND b.t_end >= {{t}}

-- name: tree_box
b.west <= {{east}} AND b.east >= {{west}} AND b.south <= {{north}} AND b.north >= {{south}}

-- name: box
s.west <= {{east}} AND s.east >= {{west}} AND s.south <= {{north}} AND s.north >= {{south}}

-- name: tagged_by
s.n IN (SELECT n FROM {{tags}} WHERE tag = {{value}}
           AND n BETWEEN {{t}} << 40 AND (({{t}} + 1) << 40) - 1)

-- name: tagged
EXISTS (SELECT 1 FROM json_each(s.jsondata, '$.properties."@ns:com:here:xyz".tags') t
         WHERE t.value = {{value}})

-- name: prefix
{{column}} >= {{first}} AND {{column}} < {{end}}

-- name: from_value
{{column}} >= {{first}}

-- name: one_of
{{column}} IN (SELECT value FROM json_each({{values}}))

-- name: any_action
s.action IN ('CREATE', 'UPDATE', 'DELETE')

-- name: at_least
{{column}} >= {{value}}

-- name: below
{{column}} < {{value}}

-- name: txn_until
-- Upper bound of the range of the index on txn that `at_least` begins.
s.txn <= {{at}}

-- name: test_exists
json_type({{document}}, {{path}}) IS NOT NULL

-- name: test_is_null
json_type({{document}}, {{path}}) = 'null'

-- name: test_starts_with
(json_type({{document}}, {{path}}) = 'text'
 AND substr(json_extract({{document}}, {{path}}), 1, length({{value}})) = {{value}})

-- name: test_any_starts_with
(json_type({{document}}, {{path}}) = 'array'
 AND EXISTS (SELECT 1 FROM json_each({{document}}, {{path}}) AS t
              WHERE t.type = 'text' AND substr(t.value, 1, length({{value}})) = {{value}}))

-- name: test_order_string
(json_type({{document}}, {{path}}) = 'text'
 AND json_extract({{document}}, {{path}}) {{operator}} {{value}})

-- name: test_order_number
(json_type({{document}}, {{path}}) IN ('integer', 'real')
 AND json_extract({{document}}, {{path}}) {{operator}} {{value}})

-- name: test_holds
-- Python functions get bytes, because a text that is not UTF-8 cannot be passed to them.
naksha_holds(CAST(coalesce({{document}}, 'null') AS BLOB), {{test}})

-- name: unmasked_id
NOT EXISTS (SELECT 1 FROM naksha_ids AS m WHERE m.t = {{mask}} AND m.id = s.id)

-- name: ended_at
s.txn_next <= {{at}}

-- name: source_row
-- The stored columns of a state, in the order of `naksha_stage`.
SELECT s.i, s.id, s.geo, s.geometry, s.jsondata, s.west, s.south, s.east, s.north, s.txn, s.ord,
       s.version, s.action, s.author, s.app_id, s.updated_at, s.qrid, s.mrid
  FROM {{from_}} WHERE {{conditions}}

-- name: state_by_i
-- ?1 is the table number, ?2 the number of the state, ?3 the transaction that it is read at.
SELECT s.id, {{feature}} FROM naksha_head AS s WHERE s.t = ?1 AND s.i = ?2 AND s.txn <= ?3
UNION ALL
SELECT s.id, {{feature}} FROM naksha_del AS s WHERE s.n = (?1 << 40) + ?2 AND s.txn <= ?3
UNION ALL
SELECT s.id, {{closed}} FROM naksha_hst AS s WHERE s.n = (?1 << 40) + ?2 AND s.txn <= ?3
LIMIT 1
