-- What the derivatives of an item were made by: they are made again when the
-- configuration says otherwise. '' is before this was known.
ALTER TABLE media_item ADD COLUMN recipe TEXT NOT NULL DEFAULT '';
CREATE INDEX media_item_by_recipe ON media_item (recipe, id) WHERE status = 'ready';
