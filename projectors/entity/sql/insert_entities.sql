-- Make the entities that are new, with their keys.
-- Parameters: generation; parallel arrays in the order of (tenant, id); key_tenants, key_ids, keys,
--             shares: parallel arrays.
-- Isolation:  waits for a worker that is making the same entity; the order keeps two from waiting
--             for each other in a circle.
-- Index:      entity_pkey.
WITH made AS (
    INSERT INTO entity (tenant, generation, id, user_id, agent_id, run_id, name, display, label)
    SELECT w.tenant, :generation, w.id, w.user_id, w.agent_id, w.run_id, w.name, w.display, w.label
      FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:user_ids AS text[]),
                  CAST(:agent_ids AS text[]), CAST(:run_ids AS text[]), CAST(:names AS text[]),
                  CAST(:displays AS text[]), CAST(:labels AS text[]))
        AS w(tenant, id, user_id, agent_id, run_id, name, display, label)
        ON CONFLICT (tenant, generation, id) DO NOTHING
    RETURNING tenant, id, user_id, agent_id, run_id
)
INSERT INTO entity_key (tenant, generation, entity_id, key, share, user_id, agent_id, run_id)
SELECT made.tenant, :generation, made.id, k.key, k.share, made.user_id, made.agent_id, made.run_id
  FROM made
  JOIN unnest(CAST(:key_tenants AS text[]), CAST(:key_ids AS uuid[]), CAST(:keys AS text[]),
              CAST(:shares AS real[])) AS k(tenant, id, key, share)
    ON k.tenant = made.tenant AND k.id = made.id
