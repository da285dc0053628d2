-- The trace of the request that a job comes from, as the header traceparent of W3C; '' for none.
ALTER TABLE kit_job ADD COLUMN trace TEXT NOT NULL DEFAULT '';
