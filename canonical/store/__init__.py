"""What Postgres holds and how it is read and written: tables, named SQL, log, watermarks."""
