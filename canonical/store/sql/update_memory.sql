-- Bring one record, which is locked, from the version before to its next state.
-- Parameters: the columns.   Isolation: READ COMMITTED, under the row's lock.   Index: memory_pkey.
UPDATE memory
   SET version = :version, rev = :rev, status = :status, text = :text,
       content_hash = :content_hash, metadata = :metadata, valid_from = :valid_from,
       valid_to = :valid_to, expires_at = :expires_at, deleted_at = :deleted_at,
       deleted_by = :deleted_by, deleted_why = :deleted_why, superseded_by = :superseded_by,
       updated_at = :now
 WHERE tenant = :tenant AND id = :id
