"""What Postgres holds and how it is read and written: tables, named SQL, the log, the watermarks."""
