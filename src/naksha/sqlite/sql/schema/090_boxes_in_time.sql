-- The tree of HEAD knows when states began, in ordinals of transactions, so that a read at a
-- version does not look up states that began later. `since` may be too early, but never too late:
-- it stays if an update does not move the box, and plain SQL leaves it at 0. No query uses `until`:
-- it makes all intervals long, so that the tree groups its boxes by place and not by time.

DROP TABLE naksha_box;
CREATE VIRTUAL TABLE naksha_box
    USING rtree(n, west, east, south, north, t, t_end, since, until);
INSERT INTO naksha_box (n, west, east, south, north, t, t_end, since, until)
SELECT n, west, east, south, north, t, t + 0.5, ord, ord + (1 << 24)
  FROM naksha_head WHERE west IS NOT NULL ORDER BY n;
