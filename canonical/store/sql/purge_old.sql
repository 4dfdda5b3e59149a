-- Forget mutation keys past their life and searches that nobody asked to keep: the oldest of each
-- kind, up to a bound, so that no statement runs into its time limit however much is due.
-- Parameters: keys_days, queries_days, bound (rows of a kind).
-- Returns:    how many went of the kind with the most; below the bound, nothing is left.
-- Isolation:  READ COMMITTED; a search that is kept meanwhile stays. None of the three tables has
--             partitions, so a ctid names one row.
-- Index:      mutation_age, source_event_age, query_event_age; pinned by
--             tests/migration/test_plans.py.
WITH m AS (
    DELETE FROM mutation WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM mutation WHERE created_at < now() - make_interval(days => :keys_days)
         ORDER BY created_at LIMIT :bound))
    RETURNING 1
), s AS (
    DELETE FROM source_event WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM source_event WHERE created_at < now() - make_interval(days => :keys_days)
         ORDER BY created_at LIMIT :bound))
    RETURNING 1
), q AS (
    DELETE FROM query_event WHERE NOT keep AND ctid = ANY(ARRAY(
        SELECT ctid FROM query_event
         WHERE NOT keep AND at < now() - make_interval(days => :queries_days)
         ORDER BY at LIMIT :bound))
    RETURNING 1
)
SELECT greatest((SELECT count(*) FROM m), (SELECT count(*) FROM s), (SELECT count(*) FROM q))
