-- One player in one pool. The state is read and written by the algorithm that
-- the row names; skill is what it stands for.
CREATE TABLE rating_player (
	pool TEXT NOT NULL,
	user_id TEXT NOT NULL,
	algorithm TEXT NOT NULL,
	state TEXT NOT NULL,
	skill DOUBLE PRECISION NOT NULL,
	xp BIGINT NOT NULL CONSTRAINT rating_player_xp_in_range CHECK (xp BETWEEN 0 AND 9007199254740991),
	games_played BIGINT NOT NULL CONSTRAINT rating_player_games_not_negative CHECK (games_played >= 0),
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (pool, user_id)
) /*pg -- */ WITHOUT ROWID
;
CREATE INDEX rating_player_skill ON rating_player (pool, algorithm, skill);

-- Keys of outcomes recorded lately, with what was answered.
CREATE TABLE rating_key (
	game TEXT NOT NULL,
	key TEXT NOT NULL,
	hash TEXT NOT NULL,
	answer TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (game, key)
) /*pg -- */ WITHOUT ROWID
;
CREATE INDEX rating_key_expiry ON rating_key (expires_at);
