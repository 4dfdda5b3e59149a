-- List parked memories, those that are tried next first.   Parameters: projection, limit.
SELECT k.*, g.state FROM parked k JOIN generation g USING (projection, generation)
 WHERE k.projection = :projection ORDER BY k.next_try, k.memory_id LIMIT :limit
