-- Lists of messages, newest first, and of suppressions, by what they are filtered by.
CREATE INDEX email_job_newest ON email_job (created_at, id);
DROP INDEX email_job_by_state;
CREATE INDEX email_job_by_state ON email_job (state, created_at, id);
DROP INDEX email_job_by_address;
CREATE INDEX email_job_by_address ON email_job (address_key, created_at, id);
CREATE INDEX email_job_by_template ON email_job (template, created_at, id) WHERE template <> '';
CREATE INDEX email_job_by_category ON email_job (category, created_at, id);
CREATE INDEX email_suppression_by_reason ON email_suppression (reason, address_key, scope);
CREATE INDEX email_suppression_by_scope ON email_suppression (scope, address_key, reason);
