-- Find what the tables of a generation say against each other: no row, if they agree.
-- Parameters: generation.
-- Isolation:  one snapshot, so it may run beside the writers.
-- Cost:       reads the generation's links, degrees, entities and keys once each.
WITH links AS (
    SELECT tenant, entity_id, shard, count(*) AS n FROM entity_link
     WHERE generation = :generation GROUP BY tenant, entity_id, shard
), degrees AS (
    SELECT tenant, entity_id, shard, degree FROM entity_degree WHERE generation = :generation
), entities AS (
    SELECT tenant, id, name FROM entity WHERE generation = :generation
), keys AS (
    SELECT tenant, entity_id, key FROM entity_key WHERE generation = :generation
)
SELECT 'degree' AS kind, tenant, entity_id,
       format('shard %s: degree %s, links %s', shard, coalesce(d.degree, 0), coalesce(l.n, 0))
         AS detail
  FROM links l FULL JOIN degrees d USING (tenant, entity_id, shard)
 WHERE coalesce(d.degree, 0) <> coalesce(l.n, 0) OR d.degree = 0
UNION ALL
SELECT 'dangling_link', l.tenant, l.entity_id, 'links to an entity that is not there'
  FROM (SELECT DISTINCT tenant, entity_id FROM links) l
 WHERE NOT EXISTS (SELECT FROM entities e WHERE e.tenant = l.tenant AND e.id = l.entity_id)
UNION ALL
SELECT 'orphan', e.tenant, e.id, 'an entity that nothing links to'
  FROM entities e
 WHERE NOT EXISTS (SELECT FROM links l WHERE l.tenant = e.tenant AND l.entity_id = e.id)
UNION ALL
SELECT 'dangling_key', k.tenant, k.entity_id, 'a key of an entity that is not there'
  FROM keys k
 WHERE NOT EXISTS (SELECT FROM entities e WHERE e.tenant = k.tenant AND e.id = k.entity_id)
UNION ALL
SELECT 'nameless', e.tenant, e.id, 'an entity that its own name does not find'
  FROM entities e
 WHERE NOT EXISTS (SELECT FROM keys k
                    WHERE k.tenant = e.tenant AND k.entity_id = e.id AND k.key = e.name)
 ORDER BY 1, 2, 3, 4
