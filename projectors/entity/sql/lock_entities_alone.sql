-- As lock_entities, and keep everybody else from linking to them: some may have to be dropped.
-- Parameters: generation; tenants, ids (parallel arrays).
-- Isolation:  whoever links or drops waits for our commit, so the last one to remove a link sees
--             that it is the last. All locks are taken in this one order.
-- Index:      entity_pkey.
SELECT e.tenant, encode(uuid_send(e.id), 'hex')
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS w(tenant, id)
  JOIN entity e ON e.tenant = w.tenant AND e.generation = :generation AND e.id = w.id
 ORDER BY e.tenant, e.id
   FOR UPDATE OF e
