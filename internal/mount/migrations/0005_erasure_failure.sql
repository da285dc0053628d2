-- The capability that failed last while a user is erased, and its error; both are
-- empty afterwards.
ALTER TABLE kit_erasure ADD COLUMN failing TEXT NOT NULL DEFAULT '';
ALTER TABLE kit_erasure ADD COLUMN error TEXT NOT NULL DEFAULT '';
