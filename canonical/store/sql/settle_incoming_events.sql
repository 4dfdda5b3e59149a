-- Take out of the staged records those whose source event made a memory before, or is that of an
-- earlier line.   Parameters: tenant.
-- Returns: ord, memory_id (the first one), same (whether its body was the same), shard, pos (NULL:
--          the memory is of this very transaction).
WITH taken AS (
    SELECT i.ord, s.memory_id, s.body_hash = decode(i.event ->> 2, 'hex') AS same
      FROM incoming i
      JOIN source_event s
        ON s.tenant = :tenant AND s.event_id = i.event ->> 0
       AND s.event_part = (i.event ->> 1)::integer
     WHERE i.event IS NOT NULL AND s.memory_id <> i.id
), gone AS (
    DELETE FROM incoming WHERE ord IN (SELECT ord FROM taken)
)
SELECT t.ord, t.memory_id, t.same, v.shard, v.pos
  FROM taken t
  LEFT JOIN memory_version v
    ON v.tenant = :tenant AND v.memory_id = t.memory_id AND v.version = 1
 ORDER BY t.ord
