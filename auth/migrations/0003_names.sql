-- Users are found by how their names begin, in any case.
CREATE INDEX auth_user_by_name_in_lower_case ON auth_user (lower(name)) WHERE name <> '';
