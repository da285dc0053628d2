-- Nothing to change: PostgreSQL undoes a row without copies.
SELECT 1;
