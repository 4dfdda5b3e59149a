-- List parked memories, those that are tried next first.   Parameters: projection, limit.
-- Of a generation that is lost or old nothing is tried any more: what replaced it parks anew.
SELECT k.*, g.state FROM parked k JOIN generation g USING (projection, generation)
 WHERE k.projection = :projection AND g.state IN ('building', 'live')
 ORDER BY k.next_try, k.memory_id LIMIT :limit
