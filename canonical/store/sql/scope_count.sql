-- Count a scope's records of any status, up to a bound.
-- Parameters: tenant, user_id, agent_id, run_id (NULL: free), bound.
SELECT count(*) FROM (
    SELECT FROM memory
     WHERE tenant = :tenant
       AND (CAST(:user_id AS text) IS NULL OR user_id = :user_id)
       AND (CAST(:agent_id AS text) IS NULL OR agent_id = :agent_id)
       AND (CAST(:run_id AS text) IS NULL OR run_id = :run_id)
     LIMIT :bound) AS found
