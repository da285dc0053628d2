-- A list of three in a CHECK would have SQLite build a table of it for every
-- statement; alternatives cost nothing.

-- A room is a session that waits for players, reached by a code. The code lies
-- in the key-value store and names the session; what may still be done with it
-- stands here.
CREATE TABLE matchmaking_room (
	session_id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	host TEXT NOT NULL,
	uses_left BIGINT NOT NULL CONSTRAINT matchmaking_room_uses_not_negative CHECK (uses_left >= 0),
	expires_at BIGINT NOT NULL
);
CREATE INDEX matchmaking_room_by_host ON matchmaking_room (host, expires_at);
CREATE INDEX matchmaking_room_by_expiry ON matchmaking_room (expires_at);

-- Who came by the code: a second time takes no second use.
CREATE TABLE matchmaking_guest (
	session_id TEXT NOT NULL REFERENCES matchmaking_room (session_id) ON DELETE CASCADE,
	user_id TEXT NOT NULL,
	PRIMARY KEY (session_id, user_id)
) /*pg -- */ WITHOUT ROWID
;

CREATE TABLE matchmaking_invite (
	id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	inviter TEXT NOT NULL,
	invitee TEXT NOT NULL,
	state TEXT NOT NULL CONSTRAINT matchmaking_invite_state_known CHECK (state IN ('pending', 'accepted')),
	-- Empty until there is one.
	session_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT matchmaking_invite_between_two CHECK (inviter <> invitee)
);
CREATE UNIQUE INDEX matchmaking_invite_once ON matchmaking_invite (inviter, invitee, game) WHERE state = 'pending';
CREATE INDEX matchmaking_invite_by_invitee ON matchmaking_invite (invitee, id);
CREATE INDEX matchmaking_invite_by_inviter ON matchmaking_invite (inviter, id);
CREATE INDEX matchmaking_invite_by_expiry ON matchmaking_invite (expires_at);

-- One row per pair of users, the lower id first. A row in which nothing is true
-- is removed.
CREATE TABLE matchmaking_friend (
	low TEXT NOT NULL,
	high TEXT NOT NULL,
	state TEXT NOT NULL CONSTRAINT matchmaking_friend_state_known CHECK (state = 'none' OR state = 'requested' OR state = 'accepted'),
	-- Who asked; empty in the state none.
	requester TEXT NOT NULL,
	low_blocks BOOLEAN NOT NULL,
	high_blocks BOOLEAN NOT NULL,
	-- Since when the state holds.
	since BIGINT NOT NULL,
	PRIMARY KEY (low, high),
	CONSTRAINT matchmaking_friend_in_order CHECK (low < high)
);
CREATE INDEX matchmaking_friend_by_high ON matchmaking_friend (high, low);
CREATE INDEX matchmaking_friend_blocked ON matchmaking_friend (low, high) WHERE low_blocks OR high_blocks;

-- One row per player and game, kept for a while after the match: it remembers
-- against whom the player has just played. The players of a party share a
-- ticket, and all of them have the size of the party.
CREATE TABLE matchmaking_ticket (
	game TEXT NOT NULL,
	user_id TEXT NOT NULL,
	ticket_id TEXT NOT NULL,
	party BIGINT NOT NULL CONSTRAINT matchmaking_ticket_party_positive CHECK (party > 0),
	region TEXT NOT NULL,
	state TEXT NOT NULL CONSTRAINT matchmaking_ticket_state_known CHECK (state = 'waiting' OR state = 'matched' OR state = 'left'),
	skill DOUBLE PRECISION NOT NULL,
	skill_at BIGINT NOT NULL,
	enqueued_at BIGINT NOT NULL,
	-- When the player last asked, to within some seconds.
	seen_at BIGINT NOT NULL,
	-- The match of the state matched, else the one before; empty: none.
	match_id TEXT NOT NULL,
	matched_at BIGINT NOT NULL,
	PRIMARY KEY (game, user_id)
);
CREATE INDEX matchmaking_ticket_waiting ON matchmaking_ticket (game, enqueued_at, ticket_id) WHERE state = 'waiting';

-- Free seats of a session that plays already.
CREATE TABLE matchmaking_backfill (
	session_id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	region TEXT NOT NULL,
	seats BIGINT NOT NULL CONSTRAINT matchmaking_backfill_seats_positive CHECK (seats > 0),
	skill DOUBLE PRECISION NOT NULL,
	enqueued_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);
CREATE INDEX matchmaking_backfill_by_game ON matchmaking_backfill (game, enqueued_at);

-- Players that the sweep has put together. The id is that of the session to be.
CREATE TABLE matchmaking_match (
	id TEXT PRIMARY KEY,
	game TEXT NOT NULL,
	region TEXT NOT NULL,
	-- A JSON list of user ids, in turn order.
	players TEXT NOT NULL,
	-- The session that the players fill up; empty: a new one.
	backfill TEXT NOT NULL,
	state TEXT NOT NULL CONSTRAINT matchmaking_match_state_known CHECK (state = 'forming' OR state = 'formed' OR state = 'failed'),
	-- Empty where there are no sessions, and until there is one.
	session_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	-- When somebody last began to form it.
	tried_at BIGINT NOT NULL
);
CREATE INDEX matchmaking_match_forming ON matchmaking_match (game, tried_at) WHERE state = 'forming';

-- Who sweeps a game, until when. Every lease has an epoch of its own.
CREATE TABLE matchmaking_sweeper (
	game TEXT PRIMARY KEY,
	node_id TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	lease_until BIGINT NOT NULL
);

-- Nodes with presence sockets, and which users have one there. A node that
-- stops renewing takes its users with it.
CREATE TABLE matchmaking_node (
	id TEXT PRIMARY KEY,
	lease_until BIGINT NOT NULL
);
CREATE INDEX matchmaking_node_by_lease ON matchmaking_node (lease_until);

CREATE TABLE matchmaking_presence (
	user_id TEXT NOT NULL,
	node_id TEXT NOT NULL,
	PRIMARY KEY (user_id, node_id)
) /*pg -- */ WITHOUT ROWID
;
CREATE INDEX matchmaking_presence_by_node ON matchmaking_presence (node_id, user_id);
