-- List the shards with work for a generation: events above the watermark, or a parked memory due;
-- none of one that is lost or old.
-- Where workers have died at a shard again and again, it alone: a worker that dies then counts
-- against no other.
-- Parameters: projection, generation, owner, cautious_after (attempts).   Returns: shard.
-- Isolation:  READ COMMITTED, one statement: one snapshot.
SELECT shard FROM (
    SELECT w.shard, max(w.attempts) OVER () AS worst,
           row_number() OVER (ORDER BY w.attempts DESC, w.shard) AS turn
      FROM watermark w JOIN shard s USING (shard)
     WHERE w.projection = :projection AND w.generation = :generation AND NOT w.halted
       AND (w.lease_until IS NULL OR w.lease_until <= now() OR w.lease_owner = :owner)
       AND NOT EXISTS (SELECT FROM projection p WHERE p.name = :projection AND p.paused)
       AND EXISTS (SELECT FROM generation g WHERE g.projection = w.projection
                    AND g.generation = w.generation AND g.state IN ('building', 'live'))
       AND (s.pos > w.pos
            OR EXISTS (SELECT FROM parked k
                        WHERE k.projection = w.projection AND k.generation = w.generation
                          AND k.shard = w.shard AND k.next_try <= now()))) AS waiting
 WHERE worst <= :cautious_after OR turn = 1
 ORDER BY shard
