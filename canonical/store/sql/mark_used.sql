-- Note which candidates of a search were packed or used; such a search is kept.
-- Parameters: tenant, query_id, packed, used (ids as text).   Returns: a row if it is known.
UPDATE query_event q
   SET keep = true,
       candidates = (SELECT coalesce(jsonb_agg(c || jsonb_build_object(
                         'packed', coalesce((c ->> 'packed')::boolean, false)
                                   OR (c ->> 'memory_id') = ANY(:packed),
                         'used_by_answer', coalesce((c ->> 'used_by_answer')::boolean, false)
                                   OR (c ->> 'memory_id') = ANY(:used)) ORDER BY n), '[]')
                       FROM jsonb_array_elements(q.candidates) WITH ORDINALITY AS e(c, n))
 WHERE q.tenant = :tenant AND q.query_id = :query_id
RETURNING query_id
