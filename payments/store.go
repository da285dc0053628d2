package payments

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
)

// store is the SQL of purchases, charges and subjects; store_records.go holds
// that of everything else. Methods that write run inside a transaction.
type store struct{ db *database.DB }

// row is one purchase: what its rail said, and what that meant when it was
// last projected.
type row struct {
	id                       string
	rail                     RailID
	transactionID            string
	environment              StoreEnvironment
	productKey, storeProduct string
	kind                     ProductKind
	subject                  Subject
	facts                    Facts
	p                        Projection
	startsAt                 Instant
	quantity                 int64
	ownership                Ownership
	acknowledged             string
	createdAt, updatedAt     Instant
	checkedAt                Instant

	charges map[string]*charge
	fresh   bool // not stored yet
}

// charge is one row of the register of charges.
type charge struct {
	id                         string
	facts                      ChargeFacts
	currency, userID           string
	credited, clawedBack, owed int64
	moves                      int64
	retryAt                    Instant
}

const purchaseColumns = `id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id,
	facts, status, grants, COALESCE(changes_at, 0), status_then, COALESCE(access_until, 0), COALESCE(grace_until, 0),
	COALESCE(resume_at, 0), period_type, will_renew, COALESCE(billing_issue_since, 0), starts_at, quantity, ownership,
	acknowledged, created_at, updated_at, checked_at`

func scanRow(s database.Scanner) (*row, error) {
	r := &row{}
	var facts string
	err := s.Scan(&r.id, &r.rail, &r.transactionID, &r.environment, &r.productKey, &r.storeProduct, &r.kind, &r.subject.Type, &r.subject.ID,
		&facts, &r.p.Status, &r.p.Grants, &r.p.ChangesAt, &r.p.Then, &r.p.AccessUntil, &r.p.GraceUntil,
		&r.p.ResumeAt, &r.p.PeriodType, &r.p.WillRenew, &r.p.BillingIssueSince, &r.startsAt, &r.quantity, &r.ownership,
		&r.acknowledged, &r.createdAt, &r.updatedAt, &r.checkedAt)
	if err != nil {
		return nil, err
	}
	r.p.GrantsUntil, r.p.MoneyArrived = r.p.ChangesAt, r.p.Status.MoneyArrived()
	return r, json.Unmarshal([]byte(facts), &r.facts)
}

// lock returns a purchase with its charges, made if there is none, and holds it
// for the rest of the transaction.
func (s store) lock(ctx context.Context, rail RailID, transactionID string, environment StoreEnvironment) (*row, error) {
	for range 2 {
		r, ok, err := database.Get(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase
			WHERE rail = $1 AND transaction_id = $2 `+database.ForUpdate, string(rail), transactionID)
		if err != nil {
			return nil, err
		}
		if ok {
			r.charges, err = s.charges(ctx, r)
			return r, err
		}
		if s.db.Dialect() == database.SQLite {
			break
		}
		// On PostgreSQL another node may make the row at the same time; who comes
		// second waits here and finds it.
		if err := s.insertPurchase(ctx, newRow(rail, transactionID, environment, s.db.Now(ctx))); err != nil {
			return nil, err
		}
	}
	r := newRow(rail, transactionID, environment, s.db.Now(ctx))
	r.charges = make(map[string]*charge)
	return r, nil
}

func newRow(rail RailID, transactionID string, environment StoreEnvironment, now time.Time) *row {
	return &row{id: id.New(now), rail: rail, transactionID: transactionID, environment: environment, fresh: true,
		p: Projection{Status: StatusExpired, PeriodType: PeriodNormal}, quantity: 1, ownership: OwnershipPurchased,
		acknowledged: ackNone, createdAt: At(now), updatedAt: At(now)}
}

func (s store) charges(ctx context.Context, r *row) (map[string]*charge, error) {
	list, err := database.All(ctx, s.db, scanCharge, `SELECT charge_id, facts, currency, user_id, credited, clawed_back, owed, moves,
		COALESCE(retry_at, 0) FROM payments_charge WHERE purchase_id = $1`, r.id)
	charges := make(map[string]*charge, len(list))
	r.facts.Charges = make(map[string]ChargeFacts, len(list))
	for _, c := range list {
		charges[c.id] = c
		r.facts.Charges[c.id] = c.facts
	}
	return charges, err
}

func scanCharge(s database.Scanner) (*charge, error) {
	c := &charge{}
	var facts string
	if err := s.Scan(&c.id, &facts, &c.currency, &c.userID, &c.credited, &c.clawedBack, &c.owed, &c.moves, &c.retryAt); err != nil {
		return nil, err
	}
	return c, json.Unmarshal([]byte(facts), &c.facts)
}

func (s store) insertPurchase(ctx context.Context, r *row) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind,
		subject_type, subject_id, facts, status, grants, changes_at, status_then, access_until, grace_until, resume_at, period_type,
		will_renew, billing_issue_since, starts_at, quantity, ownership, acknowledged, created_at, updated_at, checked_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, NULLIF(CAST($13 AS BIGINT), 0), $14, NULLIF(CAST($15 AS BIGINT), 0), NULLIF(CAST($16 AS BIGINT), 0), NULLIF(CAST($17 AS BIGINT), 0), $18,
			$19, NULLIF(CAST($20 AS BIGINT), 0), $21, $22, $23, $24, $25, $26, $27) ON CONFLICT DO NOTHING`, r.values()...)
	return err
}

func (r *row) values() []any {
	return []any{r.id, string(r.rail), r.transactionID, string(r.environment), r.productKey, r.storeProduct, string(r.kind),
		string(r.subject.Type), r.subject.ID, string(content(r.facts)), string(r.p.Status), r.p.Grants, int64(r.p.ChangesAt), string(r.p.Then),
		int64(r.p.AccessUntil), int64(r.p.GraceUntil), int64(r.p.ResumeAt), string(r.p.PeriodType), r.p.WillRenew,
		int64(r.p.BillingIssueSince), int64(r.startsAt), r.quantity, string(r.ownership), r.acknowledged, int64(r.createdAt),
		int64(r.updatedAt), int64(r.checkedAt)}
}

// save writes a purchase, without its charges.
func (s store) save(ctx context.Context, r *row) error {
	if r.fresh {
		r.fresh = false
		return s.insertPurchase(ctx, r)
	}
	_, err := s.db.Exec(ctx, `UPDATE payments_purchase SET rail = $2, transaction_id = $3, environment = $4, product_key = $5,
		store_product_id = $6, kind = $7, subject_type = $8, subject_id = $9, facts = $10, status = $11, grants = $12,
		changes_at = NULLIF(CAST($13 AS BIGINT), 0), status_then = $14, access_until = NULLIF(CAST($15 AS BIGINT), 0), grace_until = NULLIF(CAST($16 AS BIGINT), 0),
		resume_at = NULLIF(CAST($17 AS BIGINT), 0), period_type = $18, will_renew = $19, billing_issue_since = NULLIF(CAST($20 AS BIGINT), 0), starts_at = $21,
		quantity = $22, ownership = $23, acknowledged = $24, created_at = $25, updated_at = $26, checked_at = $27 WHERE id = $1`,
		r.values()...)
	return err
}

// claim makes a new charge of a purchase; ok is false when it is another
// purchase's, which named it first.
func (s store) claim(ctx context.Context, r *row, c *charge) (ok bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO payments_charge (rail, charge_id, purchase_id, facts, currency, user_id, credited, clawed_back,
		owed, moves, retry_at, created_at, updated_at) VALUES ($1, $2, $3, $4, '', '', 0, 0, 0, 0, NULL, $5, $5) ON CONFLICT DO NOTHING`,
		string(r.rail), c.id, r.id, string(content(c.facts)), int64(r.updatedAt))
	return n == 1, err
}

func (s store) saveCharge(ctx context.Context, r *row, c *charge) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_charge SET facts = $3, currency = $4, user_id = $5, credited = $6, clawed_back = $7,
		owed = $8, moves = $9, retry_at = NULLIF(CAST($10 AS BIGINT), 0), updated_at = $11 WHERE rail = $1 AND charge_id = $2`,
		string(r.rail), c.id, string(content(c.facts)), c.currency, c.userID, c.credited, c.clawedBack, c.owed, c.moves,
		int64(c.retryAt), int64(r.updatedAt))
	return err
}

func (s store) find(ctx context.Context, rail RailID, transactionID string) (*row, bool, error) {
	return database.Get(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase WHERE rail = $1 AND transaction_id = $2`,
		string(rail), transactionID)
}

// grantingColumns are what decides about entitlements, without the facts.
const grantingColumns = `id, rail, product_key, subject_id, status, COALESCE(changes_at, 0), COALESCE(access_until, 0), period_type, will_renew,
	COALESCE(billing_issue_since, 0)`

func scanGranting(s database.Scanner) (*row, error) {
	r := &row{}
	return r, s.Scan(&r.id, &r.rail, &r.productKey, &r.subject.ID, &r.p.Status, &r.p.ChangesAt, &r.p.AccessUntil, &r.p.PeriodType, &r.p.WillRenew,
		&r.p.BillingIssueSince)
}

// granting lists the purchases of a subject that may grant, as far as that
// matters: time alone makes none of the others grant. Consumables stay active for
// ever, so products that give nothing are left out.
func (s store) granting(ctx context.Context, subject Subject, products []string) ([]*row, error) {
	return database.All(ctx, s.db, scanGranting, `SELECT `+grantingColumns+` FROM payments_purchase
		WHERE subject_type = $1 AND subject_id = $2 AND status IN ('active', 'canceled', 'in_grace') AND product_key `+database.InList(3)+`
		ORDER BY id LIMIT 10000`, string(subject.Type), subject.ID, database.List(products))
}

// revocable lists the purchases of a subject that grant or may again: a late
// renewal revives even one that has expired.
func (s store) revocable(ctx context.Context, subject Subject, products []string) ([]*row, error) {
	return database.All(ctx, s.db, scanGranting, `SELECT `+grantingColumns+` FROM payments_purchase
		WHERE subject_type = $1 AND subject_id = $2 AND status NOT IN ('refunded', 'revoked', 'never_paid') AND product_key `+database.InList(3)+`
		ORDER BY id LIMIT 10000`, string(subject.Type), subject.ID, database.List(products))
}

// siblings lists the purchases of one product by one subject, without charges.
func (s store) siblings(ctx context.Context, subject Subject, productKey string) ([]*row, error) {
	return database.All(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase
		WHERE subject_type = $1 AND subject_id = $2 AND product_key = $3 ORDER BY id LIMIT 1000 `+database.ForUpdate,
		string(subject.Type), subject.ID, productKey)
}

// ofSubject lists all purchases of a subject behind an id.
func (s store) ofSubject(ctx context.Context, subject Subject, after string, limit int) ([]*row, error) {
	return database.All(ctx, s.db, scanRow, `SELECT `+purchaseColumns+` FROM payments_purchase
		WHERE subject_type = $1 AND subject_id = $2 AND id > $3 ORDER BY id LIMIT $4`, string(subject.Type), subject.ID, after, limit)
}

// subjectRow is what is kept of a subject itself.
type subjectRow struct {
	subject  Subject
	token    string
	revision int64
	erased   bool
}

func scanSubject(s database.Scanner) (r subjectRow, err error) {
	return r, s.Scan(&r.subject.Type, &r.subject.ID, &r.token, &r.revision, &r.erased)
}

const subjectColumns = `subject_type, subject_id, account_token, revision, erased`

func (s store) subject(ctx context.Context, subject Subject) (subjectRow, bool, error) {
	return database.Get(ctx, s.db, scanSubject, `SELECT `+subjectColumns+` FROM payments_subject
		WHERE subject_type = $1 AND subject_id = $2`, string(subject.Type), subject.ID)
}

// holdSubject keeps a subject from being erased for the rest of the transaction;
// ok is false when there is none with the token.
func (s store) holdSubject(ctx context.Context, subject Subject, token string) (ok bool, err error) {
	_, ok, err = database.Get(ctx, s.db, scanText, `SELECT subject_id FROM payments_subject
		WHERE subject_type = $1 AND subject_id = $2 AND account_token = $3 `+database.Text("", "FOR KEY SHARE"), string(subject.Type), subject.ID, token)
	return ok, err
}

// lockSubject is holdSubject for one transaction at a time.
func (s store) lockSubject(ctx context.Context, subject Subject, token string) (ok bool, err error) {
	_, ok, err = database.Get(ctx, s.db, scanText, `SELECT subject_id FROM payments_subject
		WHERE subject_type = $1 AND subject_id = $2 AND account_token = $3 `+database.Text("", "FOR NO KEY UPDATE"), string(subject.Type), subject.ID, token)
	return ok, err
}

// subjectOfToken finds a subject and holds it, as holdSubject does.
func (s store) subjectOfToken(ctx context.Context, token string) (subjectRow, bool, error) {
	return database.Get(ctx, s.db, scanSubject, `SELECT `+subjectColumns+` FROM payments_subject
		WHERE account_token = $1 `+database.Text("", "FOR KEY SHARE"), token)
}

// ensureSubject makes the row of a subject with a token, unless it has one.
func (s store) ensureSubject(ctx context.Context, subject Subject, token string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_subject (subject_type, subject_id, account_token, revision, erased, created_at)
		VALUES ($1, $2, $3, 0, $4, $5) ON CONFLICT DO NOTHING`, string(subject.Type), subject.ID, token, false, s.db.Now(ctx).UnixMilli())
	return err
}

// bump counts a change of a subject's entitlements and locks it.
func (s store) bump(ctx context.Context, subject Subject) error {
	_, err := s.db.Exec(ctx, `UPDATE payments_subject SET revision = revision + 1 WHERE subject_type = $1 AND subject_id = $2`,
		string(subject.Type), subject.ID)
	return err
}

// customerSubject finds the subject of a customer and keeps the customer from becoming
// another's for the rest of the transaction.
func (s store) customerSubject(ctx context.Context, rail RailID, customerID string) (subject Subject, ok bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (v Subject, err error) { return v, row.Scan(&v.Type, &v.ID) },
		`SELECT subject_type, subject_id FROM payments_customer
		WHERE rail = $1 AND customer_id = $2 `+database.Text("", "FOR SHARE"), string(rail), customerID)
}

// customer returns the first customer that a subject was at a rail.
func (s store) customer(ctx context.Context, rail RailID, subject Subject) (customerID string, err error) {
	customerID, _, err = database.Get(ctx, s.db, scanText, `SELECT customer_id FROM payments_customer
		WHERE subject_type = $1 AND subject_id = $2 AND rail = $3 ORDER BY created_at, customer_id LIMIT 1`,
		string(subject.Type), subject.ID, string(rail))
	return customerID, err
}

// ownCustomer returns the first customer that has purchases of a subject, and
// none of anybody else or of nobody.
func (s store) ownCustomer(ctx context.Context, rail RailID, subject Subject) (customerID string, err error) {
	customerID, _, err = database.Get(ctx, s.db, scanText, ownCustomerQuery, string(subject.Type), subject.ID, string(rail))
	return customerID, err
}

// customerIn reads the customer in the facts of p, as the index does.
func customerIn(p string) string {
	return database.Text(`(`+p+`.facts -> 'customerId' ->> 'value')`,
		`(CASE WHEN position('\u0000' IN `+p+`.facts) = 0 THEN `+p+`.facts::json -> 'customerId' ->> 'value' END)`)
}

var ownCustomerQuery = `SELECT ` + customerIn("p") + ` FROM payments_purchase AS p
	WHERE p.subject_type = $1 AND p.subject_id = $2 AND p.rail = $3 AND length(` + customerIn("p") + `) <= 200
		AND NOT EXISTS (SELECT 1 FROM payments_purchase AS o WHERE o.rail = $3 AND ` + customerIn("o") + ` = ` + customerIn("p") + `
			AND length(` + customerIn("o") + `) <= 200 AND (o.subject_type <> $1 OR o.subject_id <> $2))
	ORDER BY p.id LIMIT 1`

func (s store) addCustomer(ctx context.Context, rail RailID, customerID string, subject Subject) error {
	_, err := s.db.Exec(ctx, `INSERT INTO payments_customer (rail, customer_id, subject_type, subject_id, created_at)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`, string(rail), customerID, string(subject.Type), subject.ID, s.db.Now(ctx).UnixMilli())
	return err
}

// draw counts the versions of a slot up and returns the new one.
func (s store) draw(ctx context.Context, rail RailID, slot int64) (version int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		if _, err := s.db.Exec(ctx, `INSERT INTO payments_version (rail, slot, drawn) VALUES ($1, $2, 1)
			ON CONFLICT (rail, slot) DO UPDATE SET drawn = payments_version.drawn + 1`, string(rail), slot); err != nil {
			return err
		}
		return s.db.QueryRow(ctx, `SELECT drawn FROM payments_version WHERE rail = $1 AND slot = $2`, string(rail), slot).Scan(&version)
	})
	return version, err
}

func scanText(s database.Scanner) (text string, err error) { return text, s.Scan(&text) }
