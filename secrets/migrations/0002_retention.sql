-- Versions before the one before the newest are deleted, no longer emptied: the
-- newest row of a name is enough for its numbers never to be used again.
DELETE FROM secrets_version WHERE sealed IS NULL AND EXISTS (
	SELECT 1 FROM secrets_version newer WHERE newer.name = secrets_version.name AND newer.version > secrets_version.version);
CREATE INDEX secrets_rotation_finished_at ON secrets_rotation (finished_at) WHERE finished_at > 0;
