-- Read the log's epoch.
SELECT max(epoch) FROM log_epoch
