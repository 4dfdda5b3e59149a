-- Clear parked memories that were projected, if they have not changed since they were read.
-- Parameters: projection, generation, tenants, ids, last.   Index: parked_pkey.
DELETE FROM parked k
 USING unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:last AS bigint[]))
    AS r(tenant, id, last)
 WHERE k.tenant = r.tenant AND k.projection = :projection AND k.generation = :generation
   AND k.memory_id = r.id AND k.last_pos = r.last
