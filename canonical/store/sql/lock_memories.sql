-- Lock records for a change, in the order of their ids, so that two commands never wait in a circle.
-- Parameters: tenant, ids.   Returns: the rows that exist.   Index: memory_pkey.
SELECT * FROM memory WHERE tenant = :tenant AND id = ANY(:ids) ORDER BY id FOR NO KEY UPDATE
