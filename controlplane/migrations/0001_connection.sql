CREATE TABLE controlplane_connection (
	environment TEXT PRIMARY KEY,
	id TEXT NOT NULL,
	issuer TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	created_via TEXT NOT NULL CONSTRAINT controlplane_connection_created_via_known CHECK (created_via IN ('go', 'environment'))
);

-- replaces is empty for the first key of a connection.
CREATE TABLE controlplane_key (
	connection_id TEXT NOT NULL,
	id TEXT NOT NULL,
	public_key TEXT NOT NULL,
	status TEXT NOT NULL CONSTRAINT controlplane_key_status_known CHECK (status IN ('active', 'superseded', 'expired')),
	replaces TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	superseded_at BIGINT,
	expired_at BIGINT,
	PRIMARY KEY (connection_id, id)
);
CREATE UNIQUE INDEX controlplane_key_one_active ON controlplane_key (connection_id) WHERE status = 'active';
CREATE UNIQUE INDEX controlplane_key_one_successor ON controlplane_key (connection_id, replaces);

CREATE TABLE controlplane_spent (
	jti TEXT PRIMARY KEY,
	expires_at BIGINT NOT NULL
);
CREATE INDEX controlplane_spent_by_expiry ON controlplane_spent (expires_at);
