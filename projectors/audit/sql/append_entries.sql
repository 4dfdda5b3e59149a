-- Append entries to their shards' chains.
-- Parameters: generation; an entry's fields, previous, hashes (parallel arrays).
-- Isolation:  READ COMMITTED, after the watermark was moved under its lease: no other worker
--             appends. A unique violation is a second entry of one version, or at one position.
INSERT INTO audit (generation, shard, pos, tenant, memory_id, version, op, status, at, by, why,
                   text_mac, previous, hash)
SELECT :generation, e.*
  FROM unnest(CAST(:shards AS smallint[]), CAST(:positions AS bigint[]), CAST(:tenants AS text[]),
              CAST(:ids AS uuid[]), CAST(:versions AS integer[]), CAST(:ops AS text[]),
              CAST(:statuses AS text[]), CAST(:times AS timestamptz[]), CAST(:bys AS text[]),
              CAST(:whys AS text[]), CAST(:macs AS bytea[]), CAST(:previous AS bytea[]),
              CAST(:hashes AS bytea[])) AS e
