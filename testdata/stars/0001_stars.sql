CREATE TABLE stars_star (
  media_id TEXT NOT NULL,
  user_id  TEXT NOT NULL,
  PRIMARY KEY (media_id, user_id)
);
CREATE INDEX stars_star_user ON stars_star (user_id);
