-- Read the newest records of a scope that some projection has not applied yet: those with an event
-- above the floor of their shard, and those that are parked in a live generation.
-- Parameters: tenant, user_id, agent_id, run_id (NULL: free), shards, floors (of a shard that is not
--             among them: 0), scan (events of a shard that are looked at, the newest first), limit.
-- Returns:    most_scanned (events looked at in the busiest shard), and the columns; newest first. Of
--             no record one row, whose other columns are NULL.
-- Index:      outbox_tail, memory_pkey, parked_pkey.
WITH behind AS MATERIALIZED (
    SELECT s.shard, coalesce(f.pos, 0) AS pos
      FROM shard s
      LEFT JOIN unnest(CAST(:shards AS smallint[]), CAST(:floors AS bigint[])) AS f(shard, pos)
             ON f.shard = s.shard
     WHERE s.pos > coalesce(f.pos, 0)
), above AS MATERIALIZED (
    SELECT f.shard, e.memory_id, e.at
      FROM behind f
     CROSS JOIN LATERAL (
           SELECT o.memory_id, o.at FROM outbox o
            WHERE o.tenant = :tenant AND o.shard = f.shard AND o.pos > f.pos
            ORDER BY o.pos DESC LIMIT :scan) e
), newest AS (
    SELECT memory_id, max(at) AS at
      FROM (SELECT memory_id, at FROM above
             UNION ALL
            SELECT k.memory_id, k.parked_at
              FROM parked k JOIN generation g USING (projection, generation)
             WHERE k.tenant = :tenant AND g.state = 'live') AS either
     GROUP BY memory_id
)
SELECT scanned.most_scanned, tail.*
  FROM (SELECT coalesce(max(n), 0) AS most_scanned
          FROM (SELECT count(*) AS n FROM above GROUP BY shard) AS c) AS scanned
  LEFT JOIN (
       SELECT m.*, n.at AS newest_at
         FROM newest n
        -- One look-up for each: joined freely, all records of the tenant would be read.
        CROSS JOIN LATERAL (
              SELECT * FROM memory WHERE tenant = :tenant AND id = n.memory_id OFFSET 0) m
        WHERE (CAST(:user_id AS text) IS NULL OR m.user_id = :user_id)
          AND (CAST(:agent_id AS text) IS NULL OR m.agent_id = :agent_id)
          AND (CAST(:run_id AS text) IS NULL OR m.run_id = :run_id)
        ORDER BY n.at DESC, m.id DESC LIMIT :limit) AS tail ON true
 ORDER BY tail.newest_at DESC, tail.id DESC
