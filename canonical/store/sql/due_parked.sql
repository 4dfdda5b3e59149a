-- List parked memories whose next try has come, in its order, so that old ones starve no other.
-- Parameters: projection, generation, shards, limit.   Index: parked_due.
SELECT k.tenant, k.memory_id, k.shard, k.last_pos
  FROM parked k
 WHERE k.projection = :projection AND k.generation = :generation AND k.shard = ANY(:shards)
   AND k.next_try <= now()
 ORDER BY k.next_try LIMIT :limit
