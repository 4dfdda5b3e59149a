-- Find the newest generation of a projection that is not lost or old.   Parameters: projection.
SELECT generation FROM generation WHERE projection = :projection AND state IN ('live', 'building')
 ORDER BY generation DESC LIMIT 1
