-- Find the newest links of the entities that a query's names match, the telling ones first.
-- Parameters: tenant, generation, the scope's ids; keys; per_key: entities of one key that are
--             looked at (more of one name is a hub anyway); floor; hub; labels, weights, weight;
--             reads: links that are read.
-- Returns:    each memory once, with the best of its entities.
-- Cost:       bounded by keys × per_key and 2 × reads, whatever the degrees.
-- Index:      entity_key_user, _agent or _run; entity_pkey, entity_degree_pkey,
--             entity_link_entity. {scope} is one of seven fixed conditions on k.
WITH matched AS (
    SELECT k.entity_id, least(1, sum(CAST(k.share AS double precision))) AS similarity
      FROM unnest(CAST(:keys AS text[])) AS w(key)
     CROSS JOIN LATERAL (
           SELECT k.entity_id, k.share
             FROM entity_key k
            WHERE k.tenant = :tenant AND k.generation = :generation AND {scope} AND k.key = w.key
            ORDER BY k.entity_id
            LIMIT :per_key) k
     GROUP BY k.entity_id
), sized AS (
    SELECT m.entity_id, m.similarity, e.name, e.label, d.own,
           sum(d.own) OVER (PARTITION BY e.name) AS degree
      FROM matched m
      JOIN entity e ON e.tenant = :tenant AND e.generation = :generation AND e.id = m.entity_id
     CROSS JOIN LATERAL (
           SELECT coalesce(sum(d.degree), 0) AS own
             FROM entity_degree d
            WHERE d.tenant = :tenant AND d.generation = :generation
              AND d.entity_id = m.entity_id) d
     WHERE m.similarity >= :floor
), weighed AS (
    SELECT s.*, 1 / (1 + :hub * power(CAST(s.degree AS double precision) - 1, 2)) AS penalty,
           coalesce((CAST(:weights AS double precision[]))
                      [array_position(CAST(:labels AS text[]), s.label)], :weight) AS weight
      FROM sized s
), scored AS (
    SELECT w.*, w.similarity * w.weight * w.penalty AS score FROM weighed w
), ranked AS (
    SELECT s.*, sum(s.own) OVER (ORDER BY s.score DESC, s.entity_id ROWS UNBOUNDED PRECEDING)
                - s.own AS before
      FROM scored s
)
SELECT DISTINCT ON (l.memory_id)
       l.memory_id, l.rev, r.entity_id, r.name, r.similarity, CAST(r.degree AS bigint) AS degree,
       r.weight, r.penalty, r.score
  FROM ranked r
 CROSS JOIN LATERAL (
       SELECT l.memory_id, l.rev
         FROM entity_link l
        WHERE l.tenant = :tenant AND l.generation = :generation AND l.entity_id = r.entity_id
        ORDER BY l.memory_id DESC
        LIMIT :reads) l
 WHERE r.before < :reads
 ORDER BY l.memory_id, r.score DESC, r.entity_id
