-- Note that parked memories have changed since; their retry reads the newest state.
-- Parameters: projection, generation, tenants, ids, last.   Index: parked_pkey.
UPDATE parked k SET last_pos = greatest(k.last_pos, r.last)
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:last AS bigint[]))
    AS r(tenant, id, last)
 WHERE k.tenant = r.tenant AND k.projection = :projection AND k.generation = :generation
   AND k.memory_id = r.id
