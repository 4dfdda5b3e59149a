-- Drop those of some entities that nothing links to any more, with their keys.
-- Parameters: generation; tenants, ids (parallel arrays), locked by lock_entities_alone *before*
--             this statement's snapshot.
-- Isolation:  the lock makes the snapshot the last word: no link to them can come or go unseen.
-- Index:      entity_link_entity.
WITH gone AS (
    DELETE FROM entity e
     USING unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[])) AS w(tenant, id)
     WHERE e.tenant = w.tenant AND e.generation = :generation AND e.id = w.id
       AND NOT EXISTS (
           SELECT FROM entity_link l
            WHERE l.tenant = e.tenant AND l.generation = :generation AND l.entity_id = e.id)
    RETURNING e.tenant, e.id
)
DELETE FROM entity_key k
 USING gone
 WHERE k.tenant = gone.tenant AND k.generation = :generation AND k.entity_id = gone.id
