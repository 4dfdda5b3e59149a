-- Let parked memories be tried at once.   Parameters: projection, ids (NULL: all).
-- Watermarks are not touched. Of a generation that is lost or old nothing is tried any more.
UPDATE parked k SET next_try = now()
  FROM generation g
 WHERE g.projection = k.projection AND g.generation = k.generation
   AND g.state IN ('building', 'live')
   AND k.projection = :projection AND (CAST(:ids AS uuid[]) IS NULL OR k.memory_id = ANY(:ids))
