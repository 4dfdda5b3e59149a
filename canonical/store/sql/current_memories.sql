-- Read the present state of some records of a tenant.   Parameters: tenant, ids.   Index: memory_pkey.
SELECT * FROM memory WHERE tenant = :tenant AND id = ANY(:ids)
