-- List the generations that serve or are being built.   Parameters: projections.
-- Returns: projection, generation, state, schema_hash; the oldest first.   Index: generation_pkey.
SELECT projection, generation, state, schema_hash FROM generation
 WHERE projection = ANY(:projections) AND state IN ('building', 'live')
 ORDER BY projection, generation
