-- A known text sealed with the master keys: a node whose keys do not open it has others.
CREATE TABLE kit_master_key (
	name TEXT PRIMARY KEY,
	sealed BYTEA NOT NULL
);
