-- Which threads of support a member wrote in.
CREATE TABLE testers_feedback (
	member_id TEXT NOT NULL,
	thread_id TEXT NOT NULL,
	at BIGINT NOT NULL,
	PRIMARY KEY (member_id, thread_id)
);
