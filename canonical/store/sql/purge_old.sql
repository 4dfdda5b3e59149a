-- Forget mutation keys past their life and searches that nobody asked to keep.
-- Parameters: keys_days, queries_days.
WITH m AS (DELETE FROM mutation WHERE created_at < now() - make_interval(days => :keys_days)),
     s AS (DELETE FROM source_event WHERE created_at < now() - make_interval(days => :keys_days))
DELETE FROM query_event
 WHERE NOT keep AND at < now() - make_interval(days => :queries_days)
