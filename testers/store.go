package testers

import (
	"context"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// store contains all SQL of testers.
type store struct{ db *database.DB }

// model stores the hash of a version's constants unless one is stored, and returns the stored one.
func (s store) model(ctx context.Context, version, hash string, now time.Time) (noted string, err error) {
	if _, err := s.db.Exec(ctx, `INSERT INTO testers_model (version, hash, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		version, hash, now.UnixMilli()); err != nil {
		return "", err
	}
	return noted, s.db.QueryRow(ctx, `SELECT hash FROM testers_model WHERE version = $1`, version).Scan(&noted)
}

// setCohort creates a cohort or updates its declared fields.
func (s store) setCohort(ctx context.Context, c CohortConfig, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO testers_cohort (id, name, status, store_url, target_size, window_days, max_roster,
			window_elapsed, window_started, resets, last_reset, last_day, last_pass_at, nudge_day, nudges, created_at)
		VALUES ($1, $2, 'open', $3, $4, $5, $6, 0, 0, 0, 0, 0, 0, 0, 0, $7)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, store_url = excluded.store_url, target_size = excluded.target_size,
			window_days = excluded.window_days, max_roster = excluded.max_roster`,
		c.ID, c.Name, c.StoreURL, c.TargetSize, c.WindowDays, c.MaxRosterSize, now.UnixMilli())
	return err
}

const cohortColumns = `id, name, status, store_url, target_size, window_days, max_roster, window_elapsed, window_started, resets,
	last_reset, last_day, last_pass_at, nudge_day, nudges, created_at`

func scanCohort(row database.Scanner) (c Cohort, err error) {
	return c, row.Scan(&c.ID, &c.Name, &c.Status, &c.StoreURL, &c.TargetSize, &c.WindowDays, &c.MaxRosterSize, &c.elapsed, &c.started,
		&c.resets, &c.lastReset, &c.lastDay, &c.lastPass, &c.nudgeDay, &c.nudges, &c.created)
}

func (s store) cohort(ctx context.Context, id string) (Cohort, bool, error) {
	return database.Get(ctx, s.db, scanCohort, `SELECT `+cohortColumns+` FROM testers_cohort WHERE id = $1`, id)
}

// lockCohort reads and locks a cohort that the transaction will change.
func (s store) lockCohort(ctx context.Context, id string) (Cohort, bool, error) {
	return database.Get(ctx, s.db, scanCohort, `SELECT `+cohortColumns+` FROM testers_cohort WHERE id = $1 `+database.ForUpdate, id)
}

func (s store) cohorts(ctx context.Context, after string, limit int) ([]Cohort, error) {
	return database.All(ctx, s.db, scanCohort, `SELECT `+cohortColumns+` FROM testers_cohort WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

func (s store) countCohorts(ctx context.Context) (n int, err error) {
	return n, s.db.QueryRow(ctx, `SELECT count(*) FROM testers_cohort`).Scan(&n)
}

func (s store) setStatus(ctx context.Context, id string, status Status) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE testers_cohort SET status = $2 WHERE id = $1`, id, string(status))
	return n == 1, err
}

// setWindow writes the counters of daily passes and nudges.
func (s store) setWindow(ctx context.Context, c Cohort) error {
	_, err := s.db.Exec(ctx, `UPDATE testers_cohort SET window_elapsed = $2, window_started = $3, resets = $4, last_reset = $5,
		last_day = $6, last_pass_at = $7, nudge_day = $8, nudges = $9 WHERE id = $1`,
		c.ID, c.elapsed, c.started, c.resets, c.lastReset, c.lastDay, c.lastPass, c.nudgeDay, c.nudges)
	return err
}

const memberColumns = `id, cohort_id, address_key, address_hash, address, name, state, state_at, lapse_reason, user_id, consent_at,
	opted_in_on, days_total, last_seen_on, last_session, app_version, unreachable_on, generation, nudge_kind, nudge_at, mail_job`

func scanMember(row database.Scanner) (m Member, err error) {
	var session, version string
	err = row.Scan(&m.ID, &m.CohortID, &m.key, &m.hash, &m.Email, &m.Name, &m.State, &m.stateAt, &m.lapse, &m.user, &m.consent,
		&m.optedOn, &m.total, &m.seen, &session, &version, &m.noMail, &m.generation, &m.nudgeKind, &m.nudgeAt, &m.mailJob)
	m.LastSession, m.AppVersion = optional.Text(session), optional.Text(version)
	return m, err
}

func (s store) member(ctx context.Context, id string) (Member, bool, error) {
	return database.Get(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member WHERE id = $1`, id)
}

// lockMember reads and locks a member that the transaction will change.
func (s store) lockMember(ctx context.Context, id string) (Member, bool, error) {
	return database.Get(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member WHERE id = $1 `+database.ForUpdate, id)
}

func (s store) memberByAddress(ctx context.Context, cohortID, key string) (Member, bool, error) {
	return database.Get(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member
		WHERE cohort_id = $1 AND address_key = $2 `+database.ForUpdate, cohortID, key)
}

const membersOfCohort = `SELECT ` + memberColumns + ` FROM testers_member WHERE cohort_id = $1
	ORDER BY CASE WHEN state IN ('removed', 'withdrawn') THEN 1 ELSE 0 END, id LIMIT $2`

// members lists the members of a cohort, those on the roster first.
func (s store) members(ctx context.Context, cohortID string, limit int) ([]Member, error) {
	return database.All(ctx, s.db, scanMember, membersOfCohort, cohortID, limit)
}

// lockMembers is members for a transaction that will change some of them.
func (s store) lockMembers(ctx context.Context, cohortID string, limit int) ([]Member, error) {
	return database.All(ctx, s.db, scanMember, membersOfCohort+` `+database.ForUpdate, cohortID, limit)
}

func (s store) counts(ctx context.Context, cohortID string) (map[State]int, error) {
	counts := make(map[State]int)
	_, err := database.All(ctx, s.db, func(row database.Scanner) (struct{}, error) {
		var state State
		var n int
		err := row.Scan(&state, &n)
		counts[state] = n
		return struct{}{}, err
	}, `SELECT state, count(*) FROM testers_member WHERE cohort_id = $1 GROUP BY state`, cohortID)
	return counts, err
}

func (s store) membersOfUser(ctx context.Context, userID string) ([]Member, error) {
	return database.All(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member
		WHERE user_id = $1 AND user_id <> '' ORDER BY id LIMIT 100`, userID)
}

func (s store) membersOfHash(ctx context.Context, hash string) ([]Member, error) {
	return database.All(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member WHERE address_hash = $1 ORDER BY id `+database.ForUpdate, hash)
}

// link sets the user of the members of an address.
func (s store) link(ctx context.Context, userID, key string) error {
	_, err := s.db.Exec(ctx, `UPDATE testers_member SET user_id = $1 WHERE address_key = $2 AND user_id = ''
		AND state NOT IN ('removed', 'withdrawn')`, userID, key)
	return err
}

func (s store) linked(ctx context.Context, key string) (exists bool, err error) {
	_, exists, err = database.Get(ctx, s.db, func(row database.Scanner) (n int, err error) { return n, row.Scan(&n) },
		`SELECT 1 FROM testers_member WHERE address_key = $1 AND user_id = '' AND state NOT IN ('removed', 'withdrawn') LIMIT 1`, key)
	return exists, err
}

// insertMember returns false if the address is already in the cohort.
func (s store) insertMember(ctx context.Context, m Member, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO testers_member (id, cohort_id, address_key, address_hash, address, name, state, state_at,
			lapse_reason, user_id, consent_at, opted_in_on, days_total, last_seen_on, last_session, app_version, unreachable_on,
			generation, nudge_kind, nudge_at, mail_job, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', '', 0, 0, 0, 0, '', '', 0, 0, '', 0, '', $8) ON CONFLICT DO NOTHING`,
		m.ID, m.CohortID, m.key, m.hash, m.Email, m.Name, string(m.State), now.UnixMilli())
	return n == 1, err
}

// update writes all mutable fields of a member. A withdrawn member stays withdrawn, even if the
// caller read the row before the withdrawal.
func (s store) update(ctx context.Context, m Member) error {
	n, err := s.db.Exec(ctx, `UPDATE testers_member SET name = $2, state = $3, state_at = $4, lapse_reason = $5, user_id = $6,
			consent_at = $7, opted_in_on = $8, days_total = $9, last_seen_on = $10, last_session = $11, app_version = $12,
			unreachable_on = $13, generation = $14, nudge_kind = $15, nudge_at = $16,
			mail_job = $17 WHERE id = $1 AND (state <> 'withdrawn' OR CAST($3 AS TEXT) = 'withdrawn')`,
		m.ID, m.Name, string(m.State), m.stateAt, m.lapse, m.user, m.consent, m.optedOn, m.total, m.seen, optional.TextOf(m.LastSession),
		optional.TextOf(m.AppVersion), m.noMail, m.generation, string(m.nudgeKind), m.nudgeAt, m.mailJob)
	if err == nil && n == 0 {
		return ErrWithdrawn
	}
	return err
}

func (s store) insertEvent(ctx context.Context, m Member, kind, actor string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO testers_event (id, cohort_id, member_id, type, state, actor, at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		id.New(now), m.CohortID, m.ID, kind, string(m.State), actor, now.UnixMilli())
	return err
}

// event is one entry of a member's log.
type event struct {
	ID       string          `json:"-"`
	MemberID string          `json:"memberId"`
	Type     string          `json:"type"`
	State    State           `json:"state"`
	At       capability.Time `json:"at"`
}

func scanEvent(row database.Scanner) (e event, err error) {
	var at int64
	err = row.Scan(&e.ID, &e.MemberID, &e.Type, &e.State, &at)
	e.At = capability.Millis(at)
	return e, err
}

// transitions lists a cohort's changes of state after an id, oldest first.
func (s store) transitions(ctx context.Context, cohortID, after string, limit int) ([]event, error) {
	return database.All(ctx, s.db, scanEvent, `SELECT id, member_id, type, state, at FROM testers_event
		WHERE cohort_id = $1 AND id > $2 ORDER BY id LIMIT $3`, cohortID, after, limit)
}

func (s store) eventsOf(ctx context.Context, memberID, after string, limit int) ([]event, error) {
	return database.All(ctx, s.db, scanEvent, `SELECT id, member_id, type, state, at FROM testers_event
		WHERE member_id = $1 AND id > $2 ORDER BY id LIMIT $3`, memberID, after, limit)
}

// insertSnapshot returns false if the day already has a snapshot.
func (s store) insertSnapshot(ctx context.Context, cohortID string, snap Snapshot) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO testers_snapshot (cohort_id, day, opted_in, with_streak, window_elapsed, probability, model_version)
		VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
		cohortID, snap.day, snap.OptedIn, snap.streak, snap.elapsed, snap.probability, snap.version)
	return n == 1, err
}

func (s store) snapshots(ctx context.Context, cohortID string, from int64) ([]Snapshot, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (snap Snapshot, err error) {
		err = row.Scan(&snap.day, &snap.OptedIn)
		snap.Date = dateOf(snap.day)
		return snap, err
	}, `SELECT day, opted_in FROM testers_snapshot WHERE cohort_id = $1 AND day >= $2 ORDER BY day`, cohortID, from)
}

// rewind deletes the snapshots after a day and returns the newest remaining one, if any.
func (s store) rewind(ctx context.Context, cohortID string, today int64) (last Snapshot, err error) {
	if _, err := s.db.Exec(ctx, `DELETE FROM testers_snapshot WHERE cohort_id = $1 AND day > $2`, cohortID, today); err != nil {
		return last, err
	}
	last, _, err = database.Get(ctx, s.db, func(row database.Scanner) (snap Snapshot, err error) {
		return snap, row.Scan(&snap.day, &snap.elapsed)
	}, `SELECT day, window_elapsed FROM testers_snapshot WHERE cohort_id = $1 ORDER BY day DESC LIMIT 1`, cohortID)
	return last, err
}

// insertFeedback inserts a thread of a member.
func (s store) insertFeedback(ctx context.Context, memberID, threadID string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO testers_feedback (member_id, thread_id, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		memberID, threadID, now.UnixMilli())
	return err
}

// feedbackOf lists the threads of a member with ids less than below, newest first.
func (s store) feedbackOf(ctx context.Context, memberID, below string, limit int) ([]Feedback, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (f Feedback, err error) {
		var at int64
		err = row.Scan(&f.MemberID, &f.ThreadID, &at)
		f.At = capability.Millis(at)
		return f, err
	}, `SELECT member_id, thread_id, at FROM testers_feedback
		WHERE member_id = $1 AND (CAST($2 AS TEXT) = '' OR thread_id < $2) ORDER BY thread_id DESC LIMIT $3`, memberID, below, limit)
}

// feedbackCounts returns the number of threads by member.
func (s store) feedbackCounts(ctx context.Context, memberIDs []string) (map[string]int, error) {
	counts := make(map[string]int)
	_, err := database.All(ctx, s.db, func(row database.Scanner) (struct{}, error) {
		var memberID string
		var n int
		err := row.Scan(&memberID, &n)
		counts[memberID] = n
		return struct{}{}, err
	}, `SELECT member_id, count(*) FROM testers_feedback WHERE member_id `+database.InList(1)+` GROUP BY member_id`, database.List(memberIDs))
	return counts, err
}

// lockAddress serializes invitations and withdrawals of an address until the transaction ends: the
// later one sees what the earlier one wrote.
func (s store) lockAddress(ctx context.Context, hash string) error {
	return s.db.Lock(ctx, "testers "+hash)
}

// bury records that an address is never mailed again.
func (s store) bury(ctx context.Context, hash string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO testers_tombstone (address_hash, at) VALUES ($1, $2) ON CONFLICT DO NOTHING`, hash, now.UnixMilli())
	return err
}

func (s store) buried(ctx context.Context, hashes []string) (bool, error) {
	_, found, err := database.Get(ctx, s.db, func(row database.Scanner) (n int, err error) { return n, row.Scan(&n) },
		`SELECT 1 FROM testers_tombstone WHERE address_hash `+database.InList(1)+` LIMIT 1`, database.List(hashes))
	return found, err
}

type sealedKey struct {
	number int64
	sealed []byte
}

func (s store) sealedKeys(ctx context.Context) ([]sealedKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k sealedKey, err error) { return k, row.Scan(&k.number, &k.sealed) },
		`SELECT number, sealed FROM testers_key ORDER BY number`)
}

func (s store) lastKey(ctx context.Context) (number int64, err error) {
	return number, s.db.QueryRow(ctx, `SELECT COALESCE(max(number), 0) FROM testers_key`).Scan(&number)
}

func (s store) insertKey(ctx context.Context, number int64, sealed []byte, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO testers_key (number, sealed, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		number, sealed, now.UnixMilli())
	return n == 1, err
}

// membersOfPerson lists the members of a user, and the members of the user's addresses that are
// linked to no user.
func (s store) membersOfPerson(ctx context.Context, userID string, keys []string, after string, limit int) ([]Member, error) {
	return database.All(ctx, s.db, scanMember, `SELECT `+memberColumns+` FROM testers_member
		WHERE id > $1 AND ((user_id = $2 AND user_id <> '') OR (user_id = '' AND address_key `+database.InList(3)+`)) ORDER BY id LIMIT $4`,
		after, userID, database.List(keys), limit)
}

// deleteMember removes a member whose row is locked.
func (s store) deleteMember(ctx context.Context, id string) (n int64, err error) {
	for _, statement := range []string{`DELETE FROM testers_event WHERE member_id = $1`,
		`DELETE FROM testers_feedback WHERE member_id = $1`, `DELETE FROM testers_member WHERE id = $1`} {
		rows, err := s.db.Exec(ctx, statement, id)
		if err != nil {
			return n, err
		}
		n += rows
	}
	return n, nil
}
