-- A conversation with one person. Text columns are empty and times 0 where
-- there is nothing; last_at is when its newest message came or went.
CREATE TABLE support_thread (
	id TEXT PRIMARY KEY,
	channel TEXT NOT NULL CONSTRAINT support_thread_channel_known CHECK (channel IN ('email', 'app')),
	state TEXT NOT NULL CONSTRAINT support_thread_state_known CHECK (state IN ('open', 'archived')),
	subject TEXT NOT NULL,
	user_id TEXT NOT NULL,
	from_address TEXT NOT NULL,
	from_key TEXT NOT NULL,
	link_source TEXT NOT NULL CONSTRAINT support_thread_link_known CHECK (link_source IN ('', 'session', 'email_address')),
	verified BOOLEAN NOT NULL,
	inbox TEXT NOT NULL,
	related_id TEXT NOT NULL,
	declared_category TEXT NOT NULL,
	category TEXT NOT NULL,
	priority TEXT NOT NULL CONSTRAINT support_thread_priority_known CHECK (priority IN ('urgent', 'normal', 'low')),
	sentiment TEXT NOT NULL CONSTRAINT support_thread_sentiment_known CHECK (sentiment IN ('angry', 'frustrated', 'neutral', 'positive')),
	summary TEXT NOT NULL,
	confidence DOUBLE PRECISION NOT NULL CONSTRAINT support_thread_confidence_in_range CHECK (confidence BETWEEN 0 AND 1),
	classified_by TEXT NOT NULL CONSTRAINT support_thread_classifier_known CHECK (classified_by IN ('none', 'model', 'fallback', 'staff')),
	classified_at BIGINT NOT NULL,
	classified_count BIGINT NOT NULL,
	auth_failed BOOLEAN NOT NULL,
	starred BOOLEAN NOT NULL,
	needs_reply BOOLEAN NOT NULL,
	spam BOOLEAN NOT NULL,
	suspicious BOOLEAN NOT NULL,
	assignee TEXT NOT NULL,
	snoozed_until BIGINT NOT NULL,
	message_count BIGINT NOT NULL CONSTRAINT support_thread_has_messages CHECK (message_count > 0),
	first_replied_at BIGINT NOT NULL,
	last_inbound_at BIGINT NOT NULL,
	last_outbound_at BIGINT NOT NULL,
	last_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	archived_at BIGINT NOT NULL,
	CONSTRAINT support_thread_archived CHECK ((state = 'archived') = (archived_at > 0))
);
CREATE INDEX support_thread_newest ON support_thread (last_at, id);
CREATE INDEX support_thread_state ON support_thread (state, last_at, id);
CREATE INDEX support_thread_category ON support_thread (category, last_at, id);
CREATE INDEX support_thread_priority ON support_thread (priority, last_at, id);
CREATE INDEX support_thread_sentiment ON support_thread (sentiment, last_at, id);
CREATE INDEX support_thread_channel ON support_thread (channel, last_at, id);
CREATE INDEX support_thread_user ON support_thread (user_id, last_at, id) WHERE user_id <> '';
CREATE INDEX support_thread_from ON support_thread (from_key, last_at, id) WHERE from_key <> '';
CREATE INDEX support_thread_assignee ON support_thread (assignee, last_at, id) WHERE assignee <> '';
CREATE INDEX support_thread_starred ON support_thread (last_at, id) WHERE starred;
CREATE INDEX support_thread_needs_reply ON support_thread (last_at, id) WHERE needs_reply;
CREATE INDEX support_thread_spam ON support_thread (last_at, id) WHERE spam;
CREATE INDEX support_thread_suspicious ON support_thread (last_at, id) WHERE suspicious;
CREATE INDEX support_thread_snoozed ON support_thread (last_at, id) WHERE snoozed_until > 0;
CREATE INDEX support_thread_related ON support_thread (related_id) WHERE related_id <> '';
CREATE INDEX support_thread_unclassified ON support_thread (id) WHERE classified_by = 'none';

-- One message of a thread. refs, warnings and metadata are JSON; dedupe tells a
-- mail that is delivered twice.
CREATE TABLE support_message (
	id TEXT PRIMARY KEY,
	thread_id TEXT NOT NULL,
	direction TEXT NOT NULL CONSTRAINT support_message_direction_known CHECK (direction IN ('inbound', 'outbound')),
	channel TEXT NOT NULL CONSTRAINT support_message_channel_known CHECK (channel IN ('email', 'app')),
	from_address TEXT NOT NULL,
	text TEXT NOT NULL,
	stripped TEXT NOT NULL,
	html TEXT NOT NULL,
	message_id TEXT NOT NULL,
	in_reply_to TEXT NOT NULL,
	refs TEXT NOT NULL,
	recipient TEXT NOT NULL,
	automated BOOLEAN NOT NULL,
	warnings TEXT NOT NULL,
	metadata TEXT NOT NULL,
	email_job_id TEXT NOT NULL,
	actor TEXT NOT NULL,
	dedupe TEXT NOT NULL,
	created_at BIGINT NOT NULL
);
CREATE INDEX support_message_thread ON support_message (thread_id, id);
CREATE INDEX support_message_mail ON support_message (message_id) WHERE message_id <> '';
CREATE INDEX support_message_outbound ON support_message (id) WHERE direction = 'outbound';
CREATE UNIQUE INDEX support_message_once ON support_message (dedupe) WHERE dedupe <> '';

-- What came with a message. Without an object it is only named.
CREATE TABLE support_attachment (
	id TEXT PRIMARY KEY,
	message_id TEXT NOT NULL,
	thread_id TEXT NOT NULL,
	name TEXT NOT NULL,
	type TEXT NOT NULL,
	size BIGINT NOT NULL,
	object_id TEXT NOT NULL
);
CREATE INDEX support_attachment_thread ON support_attachment (thread_id, message_id, id);

-- How much a sender, or everybody, sent within an hour.
CREATE TABLE support_guard (
	bucket TEXT PRIMARY KEY,
	hour BIGINT NOT NULL,
	count BIGINT NOT NULL
);
CREATE INDEX support_guard_hour ON support_guard (hour);
