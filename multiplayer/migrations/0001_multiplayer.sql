-- One row a session, at its newest version. An update names the version it
-- follows, so of two at once one finds nothing to update. config is the game as
-- it was at creation; seed is 128 bits in hex; state is NULL before the start.
CREATE TABLE multiplayer_session (
	id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	config TEXT NOT NULL,
	creator TEXT NOT NULL,
	phase TEXT NOT NULL CONSTRAINT multiplayer_session_phase_known CHECK (phase IN ('open', 'active', 'resolved', 'abandoned')),
	version BIGINT NOT NULL CONSTRAINT multiplayer_session_version_positive CHECK (version > 0),
	players TEXT NOT NULL,
	former TEXT NOT NULL,
	seed TEXT NOT NULL,
	words BIGINT NOT NULL CONSTRAINT multiplayer_session_words_not_negative CHECK (words >= 0),
	state TEXT,
	deadline BIGINT NOT NULL,
	alarm BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL,
	CONSTRAINT multiplayer_session_ended CHECK ((phase IN ('resolved', 'abandoned')) = (ended_at > 0))
) /*pg WITH (fillfactor = 50) */;
-- What an action changes is in none of the indexes.
CREATE INDEX multiplayer_session_live ON multiplayer_session (phase) WHERE phase IN ('open', 'active');
CREATE INDEX multiplayer_session_waiting ON multiplayer_session (creator) WHERE phase = 'open';
CREATE INDEX multiplayer_session_over ON multiplayer_session (ended_at) WHERE ended_at > 0;

-- The log: every accepted step once, under the version it led to.
CREATE TABLE multiplayer_action (
	session_id TEXT NOT NULL,
	version BIGINT NOT NULL CONSTRAINT multiplayer_action_version_positive CHECK (version > 0),
	kind TEXT NOT NULL CONSTRAINT multiplayer_action_kind_known CHECK (kind IN ('create', 'join', 'act', 'leave', 'close', 'expire', 'abandon')),
	actor TEXT NOT NULL,
	action_id TEXT NOT NULL,
	data TEXT NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (session_id, version)
);
CREATE UNIQUE INDEX multiplayer_action_once ON multiplayer_action (session_id, action_id, actor) WHERE action_id <> '';

-- What was settled in the ledger: a hold and what ended it are two rows under
-- one ref.
CREATE TABLE multiplayer_effect (
	session_id TEXT NOT NULL,
	ref TEXT NOT NULL,
	part TEXT NOT NULL CONSTRAINT multiplayer_effect_part_known CHECK (part IN ('move', 'settle')),
	kind TEXT NOT NULL,
	effect TEXT NOT NULL,
	version BIGINT NOT NULL,
	PRIMARY KEY (session_id, ref, part)
);

-- How sessions ended; kept when the rest of them is removed.
CREATE TABLE multiplayer_result (
	session_id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	phase TEXT NOT NULL CONSTRAINT multiplayer_result_phase_known CHECK (phase IN ('resolved', 'abandoned')),
	members TEXT NOT NULL,
	result TEXT NOT NULL,
	ended_at BIGINT NOT NULL
);
