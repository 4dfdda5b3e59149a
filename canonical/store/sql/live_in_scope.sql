-- List records of a scope that are not deleted and were there when the log stood at `heads`.
-- Parameters: tenant, user_id, agent_id, run_id (NULL: free), heads (position by shard, from shard
--             0), after, limit.   Returns: id, ascending.
-- Index:      memory_user, memory_agent or memory_run; memory_version_pkey.
SELECT m.id
  FROM memory m
 -- One look-up for each: joined freely, all versions of the tenant would be read.
 CROSS JOIN LATERAL (
       SELECT shard, pos FROM memory_version
        WHERE tenant = m.tenant AND memory_id = m.id AND version = 1 OFFSET 0) v
 WHERE m.tenant = :tenant AND m.status IN ('active', 'superseded') AND m.id > :after
   AND (CAST(:user_id AS text) IS NULL OR m.user_id = :user_id)
   AND (CAST(:agent_id AS text) IS NULL OR m.agent_id = :agent_id)
   AND (CAST(:run_id AS text) IS NULL OR m.run_id = :run_id)
   AND v.pos <= (CAST(:heads AS bigint[]))[v.shard + 1]
 ORDER BY m.id LIMIT :limit
