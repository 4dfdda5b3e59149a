-- Keep vectors of records that are still there: the records are locked, so that an erase either
-- sees the entry or stops it.   Parameters: model, tenants, ids, hashes, vectors.
INSERT INTO embedding_cache (tenant, model, text_hash, vector)
SELECT DISTINCT ON (live.tenant, live.hash) live.tenant, :model, live.hash, live.vector
  FROM (SELECT r.* FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]),
                               CAST(:hashes AS bytea[]), CAST(:vectors AS bytea[]))
                     AS r(tenant, id, hash, vector)
          JOIN memory m ON m.tenant = r.tenant AND m.id = r.id
         WHERE m.status IN ('active', 'superseded')
         ORDER BY r.id FOR SHARE OF m) AS live
ON CONFLICT DO NOTHING
