-- Read the newest records of a scope that some projection has not applied yet: those with an event
-- above the lowest served watermark of their shard, and those that are parked.
-- Parameters: tenant, user_id, agent_id, run_id (NULL: free), shards, floors (the lowest served
--             watermark of each), scan (events looked at, newest first), limit, projections,
--             generations (of the parked ones that count).
-- Returns:    scanned (events looked at in all), and the columns; newest first.
-- Index:      outbox_tail, memory_pkey, parked_pkey.
WITH above AS MATERIALIZED (
    SELECT e.memory_id, e.at
      FROM unnest(CAST(:shards AS smallint[]), CAST(:floors AS bigint[])) AS f(shard, pos)
     CROSS JOIN LATERAL (
           SELECT o.memory_id, o.at FROM outbox o
            WHERE o.tenant = :tenant AND o.shard = f.shard AND o.pos > f.pos
            ORDER BY o.pos DESC LIMIT :scan) e
     UNION ALL
    SELECT k.memory_id, k.parked_at
      FROM unnest(CAST(:projections AS text[]), CAST(:generations AS integer[])) AS p(name, number)
      JOIN parked k
        ON k.tenant = :tenant AND k.projection = p.name AND k.generation = p.number
), newest AS (
    SELECT memory_id, max(at) AS at FROM above GROUP BY memory_id
)
SELECT (SELECT count(*) FROM above) AS scanned, m.*
  FROM newest n JOIN memory m ON m.tenant = :tenant AND m.id = n.memory_id
 WHERE (CAST(:user_id AS text) IS NULL OR m.user_id = :user_id)
   AND (CAST(:agent_id AS text) IS NULL OR m.agent_id = :agent_id)
   AND (CAST(:run_id AS text) IS NULL OR m.run_id = :run_id)
 ORDER BY n.at DESC, m.id DESC LIMIT :limit
