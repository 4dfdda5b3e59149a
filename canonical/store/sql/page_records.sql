-- Read the present state of the memories that a page names, but for those that are parked.
-- Parameters: projection, generation, tenants, ids.   Returns: is_parked, and the columns.
-- Index:      memory_pkey, parked_pkey.
SELECT k.memory_id IS NOT NULL AS is_parked, m.*
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS named(tenant, id)
  JOIN memory m ON m.tenant = named.tenant AND m.id = named.id
  LEFT JOIN parked k
    ON k.tenant = named.tenant AND k.projection = :projection
   AND k.generation = :generation AND k.memory_id = named.id
