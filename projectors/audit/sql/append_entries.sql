-- Append versions to their shards' chains, with the hashes that were computed of them.
-- Parameters: generation, tenants, ids, versions, previous, hashes.
-- Index:      memory_version_pkey.
INSERT INTO audit (generation, shard, pos, tenant, memory_id, version, op, status, at, by, why,
                   text_mac, previous, hash)
SELECT :generation, v.shard, v.pos, v.tenant, v.memory_id, v.version, v.op, v.status, v.at, v.by,
       v.why, v.text_mac, e.previous, e.hash
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:versions AS integer[]),
              CAST(:previous AS bytea[]), CAST(:hashes AS bytea[]))
    AS e(tenant, id, version, previous, hash)
  JOIN memory_version v
    ON v.tenant = e.tenant AND v.memory_id = e.id AND v.version = e.version
