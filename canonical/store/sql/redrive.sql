-- Let parked memories be tried at once.   Parameters: projection, ids (NULL: all).
-- Watermarks are not touched.
UPDATE parked SET next_try = now()
 WHERE projection = :projection AND (CAST(:ids AS uuid[]) IS NULL OR memory_id = ANY(:ids))
