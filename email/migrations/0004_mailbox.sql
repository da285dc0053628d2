-- Kept mail belongs to its job: it goes with it, and an attempt at a job that was
-- erased meanwhile keeps nothing.
ALTER TABLE email_mailbox ADD COLUMN job_id TEXT REFERENCES email_job (id);
UPDATE email_mailbox SET job_id = (SELECT id FROM email_job WHERE provider = 'mailbox' AND provider_message_id = email_mailbox.id);
DELETE FROM email_mailbox WHERE job_id IS NULL;
CREATE INDEX email_mailbox_by_job ON email_mailbox (job_id);
