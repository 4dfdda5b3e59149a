-- Begin a new life of the log on this server.   Parameters: epoch, reason.
INSERT INTO log_epoch (epoch, system_identifier, timeline, reason)
SELECT :epoch, s.system_identifier, c.timeline_id, :reason
  FROM pg_control_system() s, pg_control_checkpoint() c
