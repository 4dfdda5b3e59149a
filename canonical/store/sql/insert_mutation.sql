-- Claim a mutation's key and keep its answer.
-- Isolation: READ COMMITTED. A twin that runs at the same time waits here for this one's commit
--            and then fails with unique_violation on mutation_pkey.
INSERT INTO mutation (tenant, mutation_id, chunk, command, body_hash, memory_ids, versions, outcome)
VALUES (:tenant, :mutation_id, :chunk, :command, :body_hash, :memory_ids, :versions, :outcome)
