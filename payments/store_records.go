package payments

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

func scanGrant(s database.Scanner) (g grantRow, err error) {
	return g, s.Scan(&g.id, &g.subject.Type, &g.subject.ID, &g.entitlement, &g.reason, &g.grantedAt, &g.expiresAt)
}

const grantColumns = `id, subject_type, subject_id, entitlement, reason, granted_at, COALESCE(expires_at, 0)`

// grants lists what was given to a subject by hand and not taken back.
func (s store) grants(ctx context.Context, subject Subject) ([]grantRow, error) {
	return database.All(ctx, s.db, scanGrant, `SELECT `+grantColumns+` FROM payments_grant
		WHERE subject_type = $1 AND subject_id = $2 AND revoked_at IS NULL ORDER BY id LIMIT 10000`, string(subject.Type), subject.ID)
}

func (s store) insertGrant(ctx context.Context, g grantRow) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_grant (id, subject_type, subject_id, entitlement, reason, granted_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, NULLIF(CAST($7 AS BIGINT), 0))`, g.id, string(g.subject.Type), g.subject.ID, g.entitlement, g.reason,
		int64(g.grantedAt), int64(g.expiresAt))
	return err
}

// endGrant ends a grant; ok is false when it had ended before.
func (s store) endGrant(ctx context.Context, grantID string) (ok bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE payments_grant SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL`, grantID, s.db.Now(ctx).UnixMilli())
	return n == 1, err
}

// lapsedGrants lists grants behind another whose time is over and whose end was
// not told of.
func (s store) lapsedGrants(ctx context.Context, now Instant, after grantRow, limit int) ([]grantRow, error) {
	return database.All(ctx, s.db, scanGrant, lapsedQuery, int64(now), limit, int64(after.expiresAt), after.id)
}

const lapsedQuery = `SELECT ` + grantColumns + ` FROM payments_grant
	WHERE revoked_at IS NULL AND expires_at <= $1 AND (expires_at, id) > ($3, $4) ORDER BY expires_at, id LIMIT $2`

// masked returns what of a subject's purchases was taken away by hand.
func (s store) masked(ctx context.Context, subject Subject) (map[mask]bool, error) {
	list, err := database.All(ctx, s.db, func(row database.Scanner) (m mask, err error) { return m, row.Scan(&m.purchaseID, &m.entitlement) },
		`SELECT purchase_id, entitlement FROM payments_revocation WHERE subject_type = $1 AND subject_id = $2`, string(subject.Type), subject.ID)
	masks := make(map[mask]bool, len(list))
	for _, m := range list {
		masks[m] = true
	}
	return masks, err
}

func (s store) addMask(ctx context.Context, m mask, subject Subject, reason string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_revocation (purchase_id, entitlement, subject_type, subject_id, reason, revoked_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, m.purchaseID, m.entitlement, string(subject.Type), subject.ID, reason, s.db.Now(ctx).UnixMilli())
	return err
}

func (s store) unmask(ctx context.Context, purchaseID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM payments_revocation WHERE purchase_id = $1`, purchaseID)
	return err
}

// held is one purchase or grant that may grant an entitlement to a subject.
type held struct {
	// product is empty for a grant, whose key is entitlement; of a purchase the
	// entitlement is one that was taken away by hand, or "".
	id, product, entitlement string
	status                   Status
	until                    Instant
}

// holdings returns all that may entitle a subject, by one query: for the check of
// every request.
func (s store) holdings(ctx context.Context, subject Subject, products []string) ([]held, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (h held, err error) {
		return h, row.Scan(&h.id, &h.product, &h.entitlement, &h.status, &h.until)
	}, `SELECT p.id, p.product_key, COALESCE(r.entitlement, ''), p.status, COALESCE(p.changes_at, 0) FROM payments_purchase AS p
			LEFT JOIN payments_revocation AS r ON r.purchase_id = p.id
			WHERE p.subject_type = $1 AND p.subject_id = $2 AND p.status IN ('active', 'canceled', 'in_grace') AND p.product_key `+database.InList(3)+`
		UNION ALL SELECT id, '', entitlement, '', COALESCE(expires_at, 0) FROM payments_grant
			WHERE subject_type = $1 AND subject_id = $2 AND revoked_at IS NULL`, string(subject.Type), subject.ID, database.List(products))
}

func (s store) moveMasks(ctx context.Context, purchaseID string, subject Subject) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_revocation SET subject_type = $2, subject_id = $3 WHERE purchase_id = $1`,
		purchaseID, string(subject.Type), subject.ID)
	return err
}

func (s store) setAcknowledged(ctx context.Context, purchaseID, state string) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_purchase SET acknowledged = $2 WHERE id = $1 AND acknowledged = 'pending'`, purchaseID, state)
	return err
}

func (s store) setChecked(ctx context.Context, purchaseID string, now Instant) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_purchase SET checked_at = $2 WHERE id = $1`, purchaseID, int64(now))
	return err
}

// delivered is a webhook in the inbox.
type delivered struct {
	rail RailID
	Delivery
	outcome  Outcome
	code     string
	attempts int64
	retryAt  Instant
}

// outcomeOf returns how a delivery ended; ok is false when it never came.
func (s store) outcomeOf(ctx context.Context, rail RailID, deliveryID string) (outcome Outcome, ok bool, err error) {
	text, ok, err := database.Get(ctx, s.db, scanText, `SELECT outcome FROM payments_delivery WHERE rail = $1 AND delivery_id = $2`,
		string(rail), deliveryID)
	return Outcome(text), ok, err
}

// record puts a delivery into the inbox with its outcome. One that ended
// already keeps the outcome it has.
func (s store) record(ctx context.Context, d delivered) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_delivery (rail, delivery_id, type, environment, at, received_at, outcome, code, attempts, retry_at, body)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, NULLIF(CAST($9 AS BIGINT), 0), $10)
		ON CONFLICT (rail, delivery_id) DO UPDATE SET outcome = excluded.outcome, code = excluded.code,
			attempts = payments_delivery.attempts + 1, retry_at = excluded.retry_at
		WHERE payments_delivery.outcome = 'failed'`,
		string(d.rail), d.ID, d.Type, string(d.Environment), int64(d.At), s.db.Now(ctx).UnixMilli(), string(d.outcome), d.code, int64(d.retryAt), d.Body)
	return err
}

// failedDeliveries lists what is to be tried again, oldest first.
func (s store) failedDeliveries(ctx context.Context, rail RailID, now Instant, limit int) ([]delivered, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (d delivered, err error) {
		return d, row.Scan(&d.rail, &d.ID, &d.Type, &d.Environment, &d.At, &d.attempts, &d.Body)
	}, failedQuery, int64(now), string(rail), limit)
}

const failedQuery = `SELECT rail, delivery_id, type, environment, at, attempts, body FROM payments_delivery
	WHERE retry_at IS NOT NULL AND retry_at <= $1 AND rail = $2 ORDER BY retry_at LIMIT $3`

func (s store) insertCheckout(ctx context.Context, checkoutID string, rail RailID, sessionID string, subject Subject, productKey string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_checkout (id, rail, session_id, subject_type, subject_id, product_key, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		checkoutID, string(rail), sessionID, string(subject.Type), subject.ID, productKey, s.db.Now(ctx).UnixMilli())
	return err
}

// checkoutOf returns the first checkout of a subject's session.
func (s store) checkoutOf(ctx context.Context, rail RailID, sessionID string, subject Subject) (checkoutID string, ok bool, err error) {
	return database.Get(ctx, s.db, scanText, `SELECT id FROM payments_checkout
		WHERE rail = $1 AND session_id = $2 AND subject_type = $3 AND subject_id = $4 ORDER BY id LIMIT 1`,
		string(rail), sessionID, string(subject.Type), subject.ID)
}

// checkoutSubject returns for whom a session was made here.
func (s store) checkoutSubject(ctx context.Context, rail RailID, sessionID string) (Subject, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (v Subject, err error) { return v, row.Scan(&v.Type, &v.ID) },
		`SELECT subject_type, subject_id FROM payments_checkout WHERE rail = $1 AND session_id = $2`, string(rail), sessionID)
}

// subscribed reports whether a subject has a granting subscription to a product.
func (s store) subscribed(ctx context.Context, subject Subject, productKey string, now Instant) (bool, error) {
	_, ok, err := database.Get(ctx, s.db, scanText, `SELECT id FROM payments_purchase WHERE subject_type = $1 AND subject_id = $2
		AND product_key = $3 AND kind = 'subscription' AND status IN ('active', 'in_grace', 'canceled')
		AND (changes_at IS NULL OR changes_at > $4) LIMIT 1`, string(subject.Type), subject.ID, productKey, int64(now))
	return ok, err
}

type discountRow struct {
	id, externalID, code, terms string
	rail                        RailID
	createdAt                   Instant
}

func scanDiscount(s database.Scanner) (d discountRow, err error) {
	return d, s.Scan(&d.id, &d.rail, &d.externalID, &d.code, &d.terms, &d.createdAt)
}

const discountColumns = `id, rail, external_id, code, terms, created_at`

func (s store) insertDiscount(ctx context.Context, d discountRow) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO payments_discount (`+discountColumns+`) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		d.id, string(d.rail), d.externalID, d.code, d.terms, int64(d.createdAt))
	return n == 1, err
}

func (s store) discount(ctx context.Context, rail RailID, code string) (discountRow, bool, error) {
	return database.Get(ctx, s.db, scanDiscount, `SELECT `+discountColumns+` FROM payments_discount WHERE rail = $1 AND code = $2`, string(rail), code)
}

func (s store) discounts(ctx context.Context, rail RailID, before string, limit int) ([]discountRow, error) {
	where := new(database.Conditions)
	where.Equal("rail", string(rail))
	earlier(where, before)
	return database.All(ctx, s.db, scanDiscount, fmt.Sprintf(`SELECT `+discountColumns+` FROM payments_discount
		WHERE %s ORDER BY id DESC LIMIT $%d`, where.Text(), where.Next()), where.Args(limit)...)
}

// earlier adds the ids before one, unless that is empty.
func earlier(where *database.Conditions, before string) {
	if before != "" {
		where.Add("id < $%d", before)
	}
}

// PurchaseFilter selects purchases; empty fields select all.
type PurchaseFilter struct {
	Rail       RailID
	Status     Status
	Subject    Subject
	ProductKey string
	// Kind is subscription for the list of subscriptions.
	Kind ProductKind
}

// purchases lists newest first. The status counts as it is now, also where no
// one has written it yet.
func (s store) purchases(ctx context.Context, f PurchaseFilter, now Instant, before string, limit int) ([]*row, error) {
	query, args := purchasesQuery(f, now, before, limit)
	return database.All(ctx, s.db, scanRow, query, args...)
}

// purchasesQuery names only what narrows the list, so that it seeks in the index
// of a filter. A status is looked for where it is written, and among the few rows
// that time has changed since they were.
func purchasesQuery(f PurchaseFilter, now Instant, before string, limit int) (query string, args []any) {
	narrow := new(database.Conditions)
	narrow.Equal("subject_type", string(f.Subject.Type))
	narrow.Equal("subject_id", f.Subject.ID)
	narrow.Equal("rail", string(f.Rail))
	narrow.Equal("product_key", f.ProductKey)
	narrow.Equal("kind", string(f.Kind))
	earlier(narrow, before)
	where := ` WHERE id > '' AND ` + narrow.Text()
	last := fmt.Sprintf(` ORDER BY id DESC LIMIT $%d`, narrow.Next())
	args = narrow.Args(limit)
	const list = `SELECT ` + purchaseColumns + ` FROM payments_purchase`
	if f.Status == "" {
		return list + where + last, args
	}
	args = append(args, string(f.Status), int64(now))
	status, at := len(args)-1, len(args)
	const part = `SELECT * FROM (SELECT * FROM payments_purchase%s AND %s%s) AS %s`
	written := fmt.Sprintf(`status = $%d AND (changes_at IS NULL OR changes_at > $%d)`, status, at)
	lapsed := fmt.Sprintf(`changes_at <= $%d AND status_then = $%d`, at, status)
	both := fmt.Sprintf(part, where, written, last, "written") + ` UNION ALL ` + fmt.Sprintf(part, where, lapsed, last, "lapsed")
	return `SELECT ` + purchaseColumns + ` FROM (` + both + `) AS found` + last, args
}

// subjects lists the ids of those who have or had something.
func (s store) subjects(ctx context.Context, after Subject, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT subject_id FROM payments_subject
		WHERE subject_type = $1 AND subject_id > $2 AND revision > 0 AND NOT erased ORDER BY subject_id LIMIT $3`, string(after.Type), after.ID, limit)
}

// grantingOf and grantsOf read for a page of subjects of one type.
func (s store) grantingOf(ctx context.Context, kind SubjectKind, ids, products []string) ([]*row, error) {
	return database.All(ctx, s.db, scanGranting, `SELECT `+grantingColumns+` FROM payments_purchase
		WHERE status IN ('active', 'canceled', 'in_grace') AND subject_type = $1 AND subject_id `+database.InList(2)+`
			AND product_key `+database.InList(3)+` ORDER BY id LIMIT 20000`, string(kind), database.List(ids), database.List(products))
}

func (s store) grantsOf(ctx context.Context, kind SubjectKind, ids []string) ([]grantRow, error) {
	return database.All(ctx, s.db, scanGrant, `SELECT `+grantColumns+` FROM payments_grant
		WHERE revoked_at IS NULL AND subject_type = $1 AND subject_id `+database.InList(2)+` ORDER BY id LIMIT 20000`, string(kind), database.List(ids))
}

func (s store) maskedOf(ctx context.Context, kind SubjectKind, ids []string) (map[mask]bool, error) {
	list, err := database.All(ctx, s.db, func(row database.Scanner) (m mask, err error) { return m, row.Scan(&m.purchaseID, &m.entitlement) },
		`SELECT purchase_id, entitlement FROM payments_revocation WHERE subject_type = $1 AND subject_id `+database.InList(2),
		string(kind), database.List(ids))
	masks := make(map[mask]bool, len(list))
	for _, m := range list {
		masks[m] = true
	}
	return masks, err
}

// chargesOf lists the charges of a purchase for export and tests.
func (s store) chargesOf(ctx context.Context, purchaseID string) ([]*charge, error) {
	return database.All(ctx, s.db, scanCharge, `SELECT charge_id, facts, currency, user_id, credited, clawed_back, owed, moves,
		COALESCE(retry_at, 0) FROM payments_charge WHERE purchase_id = $1 ORDER BY charge_id`, purchaseID)
}

func scanRun(s database.Scanner) (r runRow, err error) {
	return r, s.Scan(&r.id, &r.startedBy, &r.startedAt, &r.heartbeatAt, &r.finishedAt, &r.status, &r.checked, &r.changed, &r.failed, &r.rails)
}

const runColumns = `id, started_by, started_at, heartbeat_at, COALESCE(finished_at, 0), status, checked, changed, failed, rails`

// beginRun makes the one run there may be; ok is false while another goes on, whose
// last sign of life is in a span of time.
func (s store) beginRun(ctx context.Context, r runRow, earliest, latest Instant) (ok bool, err error) {
	if _, err := s.db.Exec(ctx, `UPDATE payments_run SET status = 'failed', finished_at = heartbeat_at
		WHERE status = 'running' AND heartbeat_at NOT BETWEEN $1 AND $2`, int64(earliest), int64(latest)); err != nil {
		return false, err
	}
	n, err := s.db.Exec(ctx, `INSERT INTO payments_run (id, started_by, started_at, heartbeat_at, status, checked, changed, failed, rails)
		VALUES ($1, $2, $3, $3, 'running', 0, 0, 0, '[]') ON CONFLICT DO NOTHING`, r.id, r.startedBy, int64(r.startedAt))
	return n == 1, err
}

// beatRun says that a run goes on; ok is false when it was given up.
func (s store) beatRun(ctx context.Context, r runRow, now Instant) (ok bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE payments_run SET heartbeat_at = $2, checked = $3, changed = $4, failed = $5
		WHERE id = $1 AND status = 'running'`, r.id, int64(now), r.checked, r.changed, r.failed)
	return n == 1, err
}

func (s store) finishRun(ctx context.Context, r runRow) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_run SET status = $2, heartbeat_at = $3, finished_at = $3, checked = $4, changed = $5, failed = $6, rails = $7
		WHERE id = $1 AND status = 'running'`, r.id, string(r.status), int64(r.finishedAt), r.checked, r.changed, r.failed, r.rails)
	return err
}

func (s store) runs(ctx context.Context, before string, limit int) ([]runRow, error) {
	where := new(database.Conditions)
	earlier(where, before)
	return database.All(ctx, s.db, scanRun, fmt.Sprintf(`SELECT `+runColumns+` FROM payments_run WHERE %s ORDER BY id DESC LIMIT $%d`,
		where.Text(), where.Next()), where.Args(limit)...)
}

// due lists purchases behind another whose status has changed by itself.
func (s store) due(ctx context.Context, rail RailID, now Instant, after *row, limit int) ([]*row, error) {
	return database.All(ctx, s.db, scanRow, dueQuery, int64(now), string(rail), limit, int64(after.p.ChangesAt), after.id)
}

const dueQuery = `SELECT ` + purchaseColumns + ` FROM payments_purchase
	WHERE changes_at <= $1 AND rail = $2 AND (changes_at, id) > ($4, $5) ORDER BY changes_at, id LIMIT $3`

// unchecked lists what may still change at its rail and was not looked at since
// an instant, longest ago first: last those that were refunded and may be renewed.
func (s store) unchecked(ctx context.Context, rail RailID, since Instant, limit int) ([]*row, error) {
	list, err := database.All(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase
		WHERE rail = $1 AND checked_at < $2 AND status IN ('active', 'in_grace', 'on_hold', 'canceled', 'paused') AND kind = 'subscription'
		ORDER BY checked_at, id LIMIT $3`, string(rail), int64(since), limit)
	if err != nil || len(list) == limit {
		return list, err
	}
	refunded, err := database.All(ctx, s.db, scanRow, refundedQuery, string(rail), int64(since), limit-len(list), int64(since-renewalAge))
	return append(list, refunded...), err
}

// renewalAge is how long after a refunded period a renewal may come: rails try to charge for no
// more than sixty days.
const renewalAge = 60 * day

const refundedQuery = `SELECT ` + purchaseColumns + ` FROM payments_purchase
	WHERE rail = $1 AND checked_at < $2 AND status = 'refunded' AND kind = 'subscription' AND will_renew AND access_until > $4
	ORDER BY checked_at, id LIMIT $3`

// recall makes due what was put off, or looked at, beyond an instant, and returns how
// many rows of each kind at most were found.
func (s store) recall(ctx context.Context, rail RailID, beyond Instant, limit int) (most int64, err error) {
	for _, query := range recallQueries {
		n, err := s.db.Exec(ctx, query, string(rail), int64(beyond), limit)
		if err != nil {
			return most, err
		}
		most = max(most, n)
	}
	return most, nil
}

var recallQueries = []string{
	`UPDATE payments_delivery SET retry_at = 0 WHERE (rail, delivery_id) IN
		(SELECT rail, delivery_id FROM payments_delivery WHERE rail = $1 AND retry_at > $2 ORDER BY retry_at LIMIT $3)`,
	`UPDATE payments_charge SET retry_at = 0 WHERE (rail, charge_id) IN
		(SELECT rail, charge_id FROM payments_charge WHERE rail = $1 AND retry_at > $2 ORDER BY retry_at LIMIT $3)`,
	`UPDATE payments_purchase SET checked_at = 0 WHERE id IN
		(SELECT id FROM payments_purchase WHERE rail = $1 AND checked_at > $2 AND kind = 'subscription'
			AND status IN ('active', 'in_grace', 'on_hold', 'canceled', 'paused') ORDER BY checked_at LIMIT $3)`,
	`UPDATE payments_purchase SET checked_at = 0 WHERE id IN
		(SELECT id FROM payments_purchase WHERE rail = $1 AND checked_at > $2 AND kind = 'subscription'
			AND status = 'refunded' AND will_renew ORDER BY checked_at LIMIT $3)`,
}

func (s store) unacknowledged(ctx context.Context, rail RailID, after string, limit int) ([]*row, error) {
	return database.All(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase
		WHERE rail = $1 AND acknowledged = 'pending' AND id > $2 ORDER BY id LIMIT $3`, string(rail), after, limit)
}

// owed lists the purchases of charges whose refund could not be taken back yet.
func (s store) owed(ctx context.Context, rail RailID, now Instant, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, owedQuery, int64(now), string(rail), limit)
}

const owedQuery = `SELECT p.transaction_id FROM payments_charge AS c JOIN payments_purchase AS p ON p.id = c.purchase_id
	WHERE c.retry_at <= $1 AND c.rail = $2 ORDER BY c.retry_at LIMIT $3`

// historyRow is how far the history of a rail was read.
type historyRow struct {
	since, until Instant
	cursor       string
}

func (s store) history(ctx context.Context, rail RailID) (h historyRow, ok bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (h historyRow, err error) {
		return h, row.Scan(&h.since, &h.until, &h.cursor)
	},
		`SELECT since, until, cursor FROM payments_history WHERE rail = $1`, string(rail))
}

func (s store) setHistory(ctx context.Context, rail RailID, h historyRow) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_history (rail, since, until, cursor) VALUES ($1, $2, $3, $4)
		ON CONFLICT (rail) DO UPDATE SET since = excluded.since, until = excluded.until, cursor = excluded.cursor`,
		string(rail), int64(h.since), int64(h.until), h.cursor)
	return err
}

// sweep removes a bounded number of rows past their age and returns how many.
func (s store) sweep(ctx context.Context, now Instant, limit int) (removed int64, err error) {
	for _, each := range []struct {
		query string
		age   Instant
	}{
		{`DELETE FROM payments_delivery WHERE (rail, delivery_id) IN
			(SELECT rail, delivery_id FROM payments_delivery WHERE received_at < $1 ORDER BY received_at LIMIT $2)`, deliveryAge},
		{`DELETE FROM payments_checkout WHERE id IN (SELECT id FROM payments_checkout WHERE created_at < $1 ORDER BY created_at LIMIT $2)`, checkoutAge},
		{`DELETE FROM payments_run WHERE id IN (SELECT id FROM payments_run WHERE started_at < $1 AND status <> 'running' ORDER BY id LIMIT $2)`, runAge},
	} {
		n, err := s.db.Exec(ctx, each.query, int64(now-each.age), limit)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// The counts that health shows, each up to a bound.
const (
	countFailedWebhooks = `SELECT COUNT(*) FROM (SELECT 1 FROM payments_delivery WHERE retry_at IS NOT NULL LIMIT 10000) AS n`
	countOwedClawbacks  = `SELECT COUNT(*) FROM (SELECT 1 FROM payments_charge WHERE retry_at IS NOT NULL LIMIT 10000) AS n`
	countUnacknowledged = `SELECT COUNT(*) FROM (SELECT 1 FROM payments_purchase WHERE acknowledged = 'pending' LIMIT 10000) AS n`
)

// count is a value of the health of payments, from an index and bounded.
func (s store) count(query string) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		var n int64
		err := s.db.QueryRow(ctx, query).Scan(&n)
		return n, err
	}
}

// pseudonymize moves a bounded number of a subject's rows to a pseudonym and
// returns how many. It locks in the order of what writes them: purchases first, the
// subject last. Rows that came before it had the subject are moved by the next call.
func (s store) pseudonymize(ctx context.Context, subject Subject, pseudonym string, limit int) (moved int64, err error) {
	for _, query := range []string{
		`UPDATE payments_charge SET user_id = '', owed = 0, retry_at = NULL WHERE (rail, charge_id) IN
			(` + creditedQuery + database.ForUpdate + `)`,
		`UPDATE payments_purchase SET subject_id = $3 WHERE id IN
			(SELECT id FROM payments_purchase WHERE subject_type = $1 AND subject_id = $2 ORDER BY id LIMIT $4)`,
		`UPDATE payments_customer SET subject_id = $3 WHERE (rail, customer_id) IN
			(SELECT rail, customer_id FROM payments_customer WHERE subject_type = $1 AND subject_id = $2 LIMIT $4)`,
		`UPDATE payments_revocation SET subject_id = $3, reason = '' WHERE (purchase_id, entitlement) IN
			(SELECT purchase_id, entitlement FROM payments_revocation WHERE subject_type = $1 AND subject_id = $2 LIMIT $4)`,
		`DELETE FROM payments_grant WHERE id IN (SELECT id FROM payments_grant WHERE subject_type = $1 AND subject_id = $2 AND $3 <> '' LIMIT $4)`,
		`DELETE FROM payments_checkout WHERE id IN (SELECT id FROM payments_checkout WHERE subject_type = $1 AND subject_id = $2 AND $3 <> '' LIMIT $4)`,
		`UPDATE payments_subject SET subject_id = $3, erased = TRUE WHERE subject_type = $1 AND subject_id = $2 AND $4 > 0`,
	} {
		n, err := s.db.Exec(ctx, query, string(subject.Type), subject.ID, pseudonym, limit)
		if err != nil {
			return moved, err
		}
		moved += n
	}
	return moved, nil
}

// creditedQuery finds the charges that credited a user, also those of purchases
// that another subject has now. Erasure locks both, in the order of webhooks: one
// that has read a charge would write the user again.
const creditedQuery = `SELECT c.rail, c.charge_id FROM payments_purchase AS p JOIN payments_charge AS c ON p.id = c.purchase_id
	WHERE $1 = 'user' AND c.user_id = $2 AND c.user_id <> '' AND $3 <> '' LIMIT $4 `

// renewing lists what of a subject renews by itself.
func (s store) renewing(ctx context.Context, subject Subject) ([]*row, error) {
	return database.All(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase WHERE subject_type = $1 AND subject_id = $2
		AND will_renew AND status IN ('active', 'in_grace', 'on_hold', 'paused') ORDER BY id LIMIT 1000`, string(subject.Type), subject.ID)
}

// revocations lists what was taken away of a subject's purchases by hand, for export.
func (s store) revocations(ctx context.Context, subject Subject, after mask, limit int) ([]revocation, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r revocation, err error) {
		var at int64
		err = row.Scan(&r.PurchaseID, &r.Entitlement, &r.Reason, &at)
		r.RevokedAt = capability.Millis(at)
		return r, err
	}, `SELECT purchase_id, entitlement, reason, revoked_at FROM payments_revocation WHERE subject_type = $1 AND subject_id = $2
		AND (purchase_id, entitlement) > ($3, $4) ORDER BY purchase_id, entitlement LIMIT $5`,
		string(subject.Type), subject.ID, after.purchaseID, after.entitlement, limit)
}

// allGrants lists what was ever given to a subject by hand, for export.
func (s store) allGrants(ctx context.Context, subject Subject, after string, limit int) ([]grantRow, error) {
	return database.All(ctx, s.db, scanGrant, `SELECT `+grantColumns+` FROM payments_grant
		WHERE subject_type = $1 AND subject_id = $2 AND id > $3 ORDER BY id LIMIT $4`, string(subject.Type), subject.ID, after, limit)
}
