-- A message is one event; a delivery is its way to one endpoint.
CREATE TABLE events_message (
  id         TEXT   NOT NULL PRIMARY KEY,
  type       TEXT   NOT NULL,
  data       TEXT   NOT NULL,
  created_at BIGINT NOT NULL
);

-- Whom a message is about: a user id, or "mail:" and an address.
CREATE TABLE events_subject (
  subject    TEXT NOT NULL,
  message_id TEXT NOT NULL,
  PRIMARY KEY (subject, message_id)
);

CREATE INDEX events_subject_message ON events_subject (message_id);

CREATE TABLE events_delivery (
  endpoint    TEXT   NOT NULL,
  message_id  TEXT   NOT NULL,
  state       TEXT   NOT NULL,
  attempts    BIGINT NOT NULL DEFAULT 0,
  last_status BIGINT NOT NULL DEFAULT 0,
  last_error  TEXT   NOT NULL DEFAULT '',
  updated_at  BIGINT NOT NULL,
  PRIMARY KEY (endpoint, message_id),
  CONSTRAINT events_delivery_state CHECK (state IN ('pending', 'delivered', 'failed'))
);

CREATE INDEX events_delivery_message ON events_delivery (message_id);
CREATE INDEX events_delivery_open ON events_delivery (endpoint, state, message_id) WHERE state <> 'delivered';

-- What is known of an endpoint; one that was never in trouble has no row.
CREATE TABLE events_endpoint (
  name          TEXT   NOT NULL PRIMARY KEY,
  failing_since BIGINT NOT NULL DEFAULT 0,
  disabled_at   BIGINT NOT NULL DEFAULT 0,
  reason        TEXT   NOT NULL DEFAULT ''
);
