-- Find the version by which a record became superseded: there is one at most.
-- Parameters: tenant, id.   Returns: memory_id, version, shard, pos.   Index: memory_version_pkey.
SELECT memory_id, version, shard, pos FROM memory_version
 WHERE tenant = :tenant AND memory_id = :id AND op = 'supersede'
