-- Stop or let go a projection.   Parameters: projection, paused.   Returns: name, or no row.
UPDATE projection SET paused = :paused WHERE name = :projection RETURNING name
