-- A group of testers of one closed test. Days are counted since 1970 in UTC, 0
-- where there is none.
CREATE TABLE testers_cohort (
	id TEXT PRIMARY KEY,
	name TEXT NOT NULL,
	status TEXT NOT NULL CONSTRAINT testers_cohort_status_known CHECK (status IN ('open', 'closed')),
	store_url TEXT NOT NULL,
	target_size BIGINT NOT NULL CONSTRAINT testers_cohort_target CHECK (target_size > 0),
	window_days BIGINT NOT NULL CONSTRAINT testers_cohort_window CHECK (window_days > 0),
	max_roster BIGINT NOT NULL CONSTRAINT testers_cohort_roster CHECK (max_roster > 0),
	window_elapsed BIGINT NOT NULL,
	window_started BIGINT NOT NULL,
	resets BIGINT NOT NULL,
	last_reset BIGINT NOT NULL,
	last_day BIGINT NOT NULL,
	last_pass_at BIGINT NOT NULL,
	nudge_day BIGINT NOT NULL,
	nudges BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);

-- A person of a cohort. days_total counts the opted-in days before opted_in_on;
-- unreachable_on is the day since when mail does not get through.
CREATE TABLE testers_member (
	id TEXT PRIMARY KEY,
	cohort_id TEXT NOT NULL,
	address_key TEXT NOT NULL,
	address_hash TEXT NOT NULL,
	address TEXT NOT NULL,
	name TEXT NOT NULL,
	state TEXT NOT NULL CONSTRAINT testers_member_state_known
		CHECK (state IN ('invited', 'accepted', 'opted_in', 'lapsed', 'removed', 'withdrawn')),
	state_at BIGINT NOT NULL,
	lapse_reason TEXT NOT NULL,
	user_id TEXT NOT NULL,
	consent_at BIGINT NOT NULL,
	opted_in_on BIGINT NOT NULL,
	days_total BIGINT NOT NULL,
	last_seen_on BIGINT NOT NULL,
	last_session TEXT NOT NULL,
	app_version TEXT NOT NULL,
	unreachable_on BIGINT NOT NULL,
	generation BIGINT NOT NULL,
	nudge_kind TEXT NOT NULL,
	nudge_at BIGINT NOT NULL,
	mail_job TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT testers_member_opted_in CHECK (state <> 'opted_in' OR (opted_in_on > 0 AND consent_at > 0))
);
CREATE UNIQUE INDEX testers_member_once ON testers_member (cohort_id, address_key);
CREATE INDEX testers_member_roster ON testers_member (cohort_id, state, id);
CREATE INDEX testers_member_address ON testers_member (address_key);
CREATE INDEX testers_member_hash ON testers_member (address_hash);
CREATE INDEX testers_member_user ON testers_member (user_id) WHERE user_id <> '';

-- What happened to a member, oldest first by id; days that a daily pass missed
-- are counted again from it.
CREATE TABLE testers_event (
	id TEXT PRIMARY KEY,
	cohort_id TEXT NOT NULL,
	member_id TEXT NOT NULL,
	type TEXT NOT NULL,
	state TEXT NOT NULL,
	actor TEXT NOT NULL,
	at BIGINT NOT NULL
);
CREATE INDEX testers_event_member ON testers_event (member_id, id);
CREATE INDEX testers_event_cohort ON testers_event (cohort_id, id);

-- What a daily pass saw. probability is below 0 where none was estimated.
CREATE TABLE testers_snapshot (
	cohort_id TEXT NOT NULL,
	day BIGINT NOT NULL,
	opted_in BIGINT NOT NULL,
	with_streak BIGINT NOT NULL,
	window_elapsed BIGINT NOT NULL,
	probability DOUBLE PRECISION NOT NULL,
	model_version TEXT NOT NULL,
	PRIMARY KEY (cohort_id, day)
);

-- Addresses, as keyed hashes, that are never mailed again.
CREATE TABLE testers_tombstone (
	address_hash TEXT PRIMARY KEY,
	at BIGINT NOT NULL
);

-- The keys of links and hashes, sealed under the master keys.
CREATE TABLE testers_key (
	number BIGINT PRIMARY KEY,
	sealed BYTEA NOT NULL,
	created_at BIGINT NOT NULL
);

-- The constants behind each version of the forecast's model.
CREATE TABLE testers_model (
	version TEXT PRIMARY KEY,
	hash TEXT NOT NULL,
	at BIGINT NOT NULL
);
