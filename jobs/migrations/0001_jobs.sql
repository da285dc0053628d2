-- A job holds its key while it is available or running; a later alarm takes the key from a running one.
CREATE TABLE kit_job (
  id           TEXT    NOT NULL PRIMARY KEY,
  binding      TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  holds_key    BOOLEAN NOT NULL,
  payload      TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  run_at       BIGINT  NOT NULL,
  attempt      BIGINT  NOT NULL,
  max_attempts BIGINT  NOT NULL,
  lease_token  TEXT    NOT NULL DEFAULT '',
  lease_until  BIGINT  NOT NULL DEFAULT 0,
  last_error   TEXT    NOT NULL DEFAULT '',
  created_at   BIGINT  NOT NULL,
  finished_at  BIGINT  NOT NULL DEFAULT 0,
  CONSTRAINT kit_job_state CHECK (state IN ('available', 'running', 'completed', 'discarded', 'cancelled')),
  CONSTRAINT kit_job_lease CHECK ((state = 'running') = (lease_token <> '')),
  CONSTRAINT kit_job_finished CHECK ((state IN ('available', 'running')) = (finished_at = 0)),
  CONSTRAINT kit_job_holds_key CHECK (NOT holds_key OR (key <> '' AND finished_at = 0)),
  CONSTRAINT kit_job_attempt CHECK (attempt >= 0)
);

CREATE INDEX kit_job_due ON kit_job (binding, run_at, id) WHERE state = 'available';
CREATE INDEX kit_job_leased ON kit_job (lease_until) WHERE state = 'running';
CREATE INDEX kit_job_ended ON kit_job (state, finished_at) WHERE finished_at > 0;
CREATE UNIQUE INDEX kit_job_key ON kit_job (binding, key) WHERE holds_key;

-- The last tick of every schedule; ticks move it forward by compare-and-set.
CREATE TABLE kit_cron (
  binding   TEXT   NOT NULL PRIMARY KEY,
  last_tick BIGINT NOT NULL
);
