-- Set a generation's state and why.   Parameters: projection, generation, state, error.
UPDATE generation
   SET state = :state, error = :error,
       live_at = CASE WHEN :state = 'live' THEN now() ELSE live_at END
 WHERE projection = :projection AND generation = :generation
