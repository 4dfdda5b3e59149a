-- List the shards with work for a generation: events above the watermark, or a parked memory due.
-- Parameters: projection, generation, owner.   Returns: shard.
-- Isolation:  READ COMMITTED, one statement: one snapshot.
SELECT w.shard
  FROM watermark w JOIN shard s USING (shard)
 WHERE w.projection = :projection AND w.generation = :generation AND NOT w.halted
   AND (w.lease_until IS NULL OR w.lease_until <= now() OR w.lease_owner = :owner)
   AND NOT EXISTS (SELECT FROM projection p WHERE p.name = :projection AND p.paused)
   AND (s.pos > w.pos
        OR EXISTS (SELECT FROM parked k
                    WHERE k.projection = w.projection AND k.generation = w.generation
                      AND k.shard = w.shard AND k.next_try <= now()))
 ORDER BY w.shard
