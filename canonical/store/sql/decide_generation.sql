-- Let one process at a time decide which generation of a projection is opened, begun or served; the
-- lock ends with the transaction, so that it holds behind a pooler too.   Parameters: projection.
SELECT pg_advisory_xact_lock(hashtextextended('gnomon: generation of ' || :projection, 0))
