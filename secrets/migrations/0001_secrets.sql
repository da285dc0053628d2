-- Versions of the SQL provider; sealed is NULL of those that are destroyed.
-- A number is never used again.
CREATE TABLE secrets_version (
	name       TEXT   NOT NULL,
	version    BIGINT NOT NULL CONSTRAINT secrets_version_positive CHECK (version > 0),
	sealed     BYTEA,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (name, version)
);

-- What happened to the secrets of any provider; never a value.
CREATE TABLE secrets_rotation (
	id           TEXT   NOT NULL PRIMARY KEY,
	name         TEXT   NOT NULL,
	started_by   TEXT   NOT NULL CONSTRAINT secrets_rotation_started_by_known CHECK (started_by IN ('operator', 'schedule', 'application')),
	step         TEXT   NOT NULL CONSTRAINT secrets_rotation_step_known CHECK (step IN ('create', 'set', 'test', 'promote', 'finish')),
	status       TEXT   NOT NULL CONSTRAINT secrets_rotation_status_known CHECK (status IN ('started', 'succeeded', 'failed')),
	code         TEXT   NOT NULL,
	from_version BIGINT NOT NULL,
	to_version   BIGINT NOT NULL,
	started_at   BIGINT NOT NULL,
	stepped_at   BIGINT NOT NULL,
	finished_at  BIGINT NOT NULL,
	CONSTRAINT secrets_rotation_finished CHECK ((status = 'started') = (finished_at = 0))
);
CREATE UNIQUE INDEX secrets_rotation_open ON secrets_rotation (name) WHERE status = 'started';
CREATE INDEX secrets_rotation_newest ON secrets_rotation (name, id);
