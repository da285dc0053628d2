-- Who has or had a seat in which session. live: the user holds the seat and the
-- session is not over.
CREATE TABLE multiplayer_seat (
	user_id TEXT NOT NULL,
	session_id TEXT NOT NULL,
	live BOOLEAN NOT NULL,
	PRIMARY KEY (user_id, session_id)
) /*pg -- */ WITHOUT ROWID
;
CREATE INDEX multiplayer_seat_live ON multiplayer_seat (user_id, session_id) WHERE live;

INSERT INTO multiplayer_seat (user_id, session_id, live)
	SELECT v.value, s.id, s.ended_at = 0 FROM multiplayer_session AS s CROSS JOIN /*pg jsonb_array_elements_text(s.players::jsonb) AS v (value) --*/ json_each(s.players) AS v
	WHERE true ON CONFLICT DO NOTHING;
INSERT INTO multiplayer_seat (user_id, session_id, live)
	SELECT v.value, s.id, FALSE FROM multiplayer_session AS s CROSS JOIN /*pg jsonb_array_elements_text(s.former::jsonb) AS v (value) --*/ json_each(s.former) AS v
	WHERE true ON CONFLICT DO NOTHING;
INSERT INTO multiplayer_seat (user_id, session_id, live)
	SELECT v.value, r.session_id, FALSE FROM multiplayer_result AS r CROSS JOIN /*pg jsonb_array_elements_text(r.members::jsonb) AS v (value) --*/ json_each(r.members) AS v
	WHERE true ON CONFLICT DO NOTHING;
