-- Retire the generations of a projection before one that serves from now on.
-- Parameters: projection, generation, error (why).
UPDATE generation SET state = 'old', error = :error
 WHERE projection = :projection AND generation < :generation AND state IN ('building', 'live')
