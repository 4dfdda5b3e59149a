-- Look up cached names.   Parameters: model, tenants, hashes.   Index: name_cache_pkey.
SELECT c.tenant, c.text_hash, c.names
  FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS bytea[])) AS k(tenant, hash)
  JOIN name_cache c ON c.tenant = k.tenant AND c.model = :model AND c.text_hash = k.hash
