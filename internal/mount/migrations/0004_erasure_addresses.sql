-- The addresses of a user whose account may be gone before the erasure is done,
-- as JSON; empty afterwards.
ALTER TABLE kit_erasure ADD COLUMN addresses TEXT NOT NULL DEFAULT '';
