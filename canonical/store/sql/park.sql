-- Park memories that can't be projected, each with its error; a repeat backs off further.
-- Parameters: projection, generation, tenants, ids, shards, first, last (positions), codes, errors.
-- Index:      parked_pkey.
INSERT INTO parked (tenant, projection, generation, memory_id, shard, first_pos, last_pos,
                    next_try, error_code, error)
SELECT r.tenant, :projection, :generation, r.id, r.shard, r.first, r.last,
       now() + interval '30 s', r.code, r.error
  FROM unnest(CAST(:tenants AS text[]), CAST(:ids AS uuid[]), CAST(:shards AS smallint[]),
              CAST(:first AS bigint[]), CAST(:last AS bigint[]), CAST(:codes AS text[]),
              CAST(:errors AS text[])) AS r(tenant, id, shard, first, last, code, error)
ON CONFLICT (tenant, projection, generation, memory_id) DO UPDATE
   SET attempts = parked.attempts + 1, last_pos = greatest(parked.last_pos, excluded.last_pos),
       next_try = now() + least(interval '1 h', interval '30 s' * 2 ^ least(parked.attempts, 10)),
       error_code = excluded.error_code, error = excluded.error
