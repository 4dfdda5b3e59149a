-- Keep names of records that are still there: the records are locked, so that an erase either sees
-- the entry or stops it.   Parameters: model, tenants, ids, hashes, names.
INSERT INTO name_cache (tenant, model, text_hash, names)
SELECT DISTINCT ON (live.tenant, live.hash) live.tenant, :model, live.hash, live.names
  FROM (SELECT r.* FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]),
                               CAST(:hashes AS bytea[]), CAST(:names AS jsonb[]))
                     AS r(tenant, id, hash, names)
          JOIN memory m ON m.tenant = r.tenant AND m.id = r.id
         WHERE m.status IN ('active', 'superseded')
         ORDER BY r.id FOR SHARE OF m) AS live
ON CONFLICT DO NOTHING
