-- Keep entities from being dropped until we commit, and return those that are there.
-- Parameters: generation; tenants, ids (parallel arrays).
-- Isolation:  shared with whoever links to them as well; waits for a worker that may drop one.
--             All locks are taken in this one order.
-- Index:      entity_pkey.
SELECT e.tenant, encode(uuid_send(e.id), 'hex')
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS w(tenant, id)
  JOIN entity e ON e.tenant = w.tenant AND e.generation = :generation AND e.id = w.id
 ORDER BY e.tenant, e.id
   FOR KEY SHARE OF e
