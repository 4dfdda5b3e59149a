-- Read the links that leave some records.   Parameters: tenant, ids.   Index: link_pkey.
SELECT source, relation, target FROM link
 WHERE tenant = :tenant AND source = ANY(:ids) ORDER BY source, created_at, target
