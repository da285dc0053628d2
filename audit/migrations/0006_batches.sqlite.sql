-- Nothing to change: triggers of SQLite run once a row.
SELECT 1;
