-- Read every version of one record, oldest first.   Index: memory_version_pkey.
SELECT * FROM memory_version WHERE tenant = :tenant AND memory_id = :id ORDER BY version
