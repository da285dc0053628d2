-- For what is exported and erased of one user.
CREATE INDEX matchmaking_guest_by_user ON matchmaking_guest (user_id);
