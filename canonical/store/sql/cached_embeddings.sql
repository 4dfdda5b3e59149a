-- Look up cached vectors.   Parameters: model, tenants, hashes.   Index: embedding_cache_pkey.
SELECT c.tenant, c.text_hash, c.vector
  FROM unnest(CAST(:tenants AS text[]), CAST(:hashes AS bytea[])) AS k(tenant, hash)
  JOIN embedding_cache c ON c.tenant = k.tenant AND c.model = :model AND c.text_hash = k.hash
