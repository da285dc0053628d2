CREATE INDEX guestbook_entry_user ON guestbook_entry (user_id);
