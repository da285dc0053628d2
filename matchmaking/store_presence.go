package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/database"
)

// renewNode extends the lease of a node, and returns false if the node is new or was removed as
// dead.
func (s store) renewNode(ctx context.Context, node string, until int64) (there bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE matchmaking_node SET lease_until = $2 WHERE id = $1`, node, until)
	if err != nil || n == 1 {
		return true, err
	}
	_, err = s.db.Exec(ctx, `INSERT INTO matchmaking_node (id, lease_until) VALUES ($1, $2)
		ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until`, node, until)
	return false, err
}

// deleteDeadNodes removes the nodes whose lease has ended and returns their users. A lease that
// ends later than possible was written before the clock went back.
func (s store) deleteDeadNodes(ctx context.Context, now int64) ([]string, error) {
	nodes, err := database.All(ctx, s.db, scanText, `DELETE FROM matchmaking_node WHERE lease_until <= $1 OR lease_until > $2 RETURNING id`,
		now, now+2*nodeLease.Milliseconds())
	if err != nil || len(nodes) == 0 {
		return nil, err
	}
	return database.All(ctx, s.db, scanText, deletePresence, database.List(nodes))
}

var deletePresence = `DELETE FROM matchmaking_presence WHERE node_id ` + database.InList(1) + ` RETURNING user_id`

func (s store) arrive(ctx context.Context, node, userID string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO matchmaking_presence (user_id, node_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, userID, node)
	return err
}

var arriveAll = `INSERT INTO matchmaking_presence (user_id, node_id)
	SELECT v.value, $2 FROM ` + database.Text(`json_each($1) AS v`, `jsonb_array_elements_text($1::jsonb) AS v (value)`) + `
	WHERE true ON CONFLICT DO NOTHING`

func (s store) arriveAll(ctx context.Context, node string, users []string) error {
	if len(users) == 0 {
		return nil
	}
	_, err := s.db.Exec(ctx, arriveAll, database.List(users), node)
	return err
}

var depart = `DELETE FROM matchmaking_presence WHERE node_id = $1 AND user_id ` + database.InList(2)

func (s store) depart(ctx context.Context, node string, users []string) error {
	if len(users) == 0 {
		return nil
	}
	_, err := s.db.Exec(ctx, depart, node, database.List(users))
	return err
}

// isElsewhere reports whether a user has a socket on another node.
func (s store) isElsewhere(ctx context.Context, now int64, node, userID string) (bool, error) {
	n, err := s.count(ctx, `SELECT count(*) FROM matchmaking_presence AS p JOIN matchmaking_node AS n ON n.id = p.node_id
		WHERE p.user_id = $1 AND p.node_id <> $2 AND n.lease_until > $3`, userID, node, now)
	return n > 0, err
}

var selectOnline = `SELECT DISTINCT p.user_id FROM matchmaking_presence AS p JOIN matchmaking_node AS n ON n.id = p.node_id
	WHERE n.lease_until > $2 AND p.user_id ` + database.InList(1) + ` ORDER BY p.user_id`

// online returns which of the users have a socket anywhere, sorted.
func (s store) online(ctx context.Context, now int64, users ...string) ([]string, error) {
	if len(users) == 0 {
		return nil, nil
	}
	return database.All(ctx, s.db, scanText, selectOnline, database.List(users), now)
}

var selectFriendsOnline = `
	SELECT f.low AS one, f.high AS other FROM matchmaking_friend AS f
	JOIN matchmaking_presence AS p ON p.user_id = f.high JOIN matchmaking_node AS n ON n.id = p.node_id
	WHERE f.state = 'accepted' AND n.lease_until > $2 AND f.low ` + database.InList(1) + `
	UNION
	SELECT f.high AS one, f.low AS other FROM matchmaking_friend AS f
	JOIN matchmaking_presence AS p ON p.user_id = f.low JOIN matchmaking_node AS n ON n.id = p.node_id
	WHERE f.state = 'accepted' AND n.lease_until > $2 AND f.high ` + database.InList(1) + `
	ORDER BY one, other`

// friendsOnline returns for each of the users which friends are online.
func (s store) friendsOnline(ctx context.Context, now int64, users []string) (map[string][]string, error) {
	if len(users) == 0 {
		return nil, nil
	}
	pairs, err := database.All(ctx, s.db, func(row database.Scanner) (pair [2]string, err error) {
		return pair, row.Scan(&pair[0], &pair[1])
	}, selectFriendsOnline, database.List(users), now)
	friends := make(map[string][]string)
	for _, pair := range pairs {
		friends[pair[0]] = append(friends[pair[0]], pair[1])
	}
	return friends, err
}

func (s store) countOnline(ctx context.Context, now int64) (int64, error) {
	return s.count(ctx, `SELECT count(DISTINCT p.user_id) FROM matchmaking_presence AS p
		JOIN matchmaking_node AS n ON n.id = p.node_id WHERE n.lease_until > $1`, now)
}
