-- The order of a pool, ties by user id.
DROP INDEX rating_player_skill;
CREATE INDEX rating_player_order ON rating_player (pool, algorithm, skill, user_id);

-- How many players of which skill a large pool had when they were last counted;
-- value is JSON.
CREATE TABLE rating_distribution (
	pool TEXT PRIMARY KEY,
	value TEXT NOT NULL
);
