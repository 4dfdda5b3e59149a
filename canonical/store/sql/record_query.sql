-- Keep the diagnostics of one search: ids, ranks and scores, never a text.
INSERT INTO query_event (tenant, query_id, keep, candidates)
VALUES (:tenant, :query_id, :keep, :candidates) ON CONFLICT DO NOTHING
