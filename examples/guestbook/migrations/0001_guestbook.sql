CREATE TABLE guestbook_entry (
  id         TEXT   NOT NULL PRIMARY KEY,
  user_id    TEXT   NOT NULL,
  text       TEXT   NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX guestbook_entry_newest ON guestbook_entry (created_at, id);
