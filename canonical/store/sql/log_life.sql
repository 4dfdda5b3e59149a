-- Compare the log's life with the server it lies on.   Returns: epoch, other_server, other_timeline.
-- One statement: one snapshot. Locked, so that of two processes one raises the epoch.
SELECT e.epoch, e.system_identifier <> s.system_identifier AS other_server,
       e.timeline <> c.timeline_id AS other_timeline
  FROM log_epoch e, pg_control_system() s, pg_control_checkpoint() c
 ORDER BY e.epoch DESC LIMIT 1 FOR UPDATE OF e
