-- Count a generation's parked memories, up to a bound.   Index: parked_due.
SELECT count(*) FROM (SELECT FROM parked
 WHERE projection = :projection AND generation = :generation LIMIT :bound) AS found
