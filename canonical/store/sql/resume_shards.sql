-- Let halted shards of a projection be claimed again.   Parameters: projection.
UPDATE watermark SET halted = false, error_code = NULL, error = NULL, held_since = NULL
 WHERE projection = :projection AND halted
