-- List records of a scope that are not deleted and were there at `began`.
-- Parameters: tenant, user_id, agent_id, run_id (NULL: free), began, limit.   Returns: id.
-- Index:      memory_user, memory_agent or memory_run.
SELECT id FROM memory
 WHERE tenant = :tenant AND status IN ('active', 'superseded') AND created_at <= :began
   AND (CAST(:user_id AS text) IS NULL OR user_id = :user_id)
   AND (CAST(:agent_id AS text) IS NULL OR agent_id = :agent_id)
   AND (CAST(:run_id AS text) IS NULL OR run_id = :run_id)
 ORDER BY id LIMIT :limit
