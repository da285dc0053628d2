-- Answers kept under an Idempotency-Key, written in the transaction of the operation.
CREATE TABLE kit_idempotency (
  route      TEXT   NOT NULL,
  caller     TEXT   NOT NULL,
  key        TEXT   NOT NULL,
  hash       TEXT   NOT NULL,
  status     BIGINT NOT NULL,
  answer     TEXT   NOT NULL,
  expires_at BIGINT NOT NULL,
  PRIMARY KEY (route, caller, key)
);
CREATE INDEX kit_idempotency_expiry ON kit_idempotency (expires_at);
