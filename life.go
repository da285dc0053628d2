package kit

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/internal/text"
	"github.com/kitbackend/kit/jobs"
)

// eraseBinding is the durable job that erases a user; erasedBefore is the one of older nodes, which
// do not know the addresses of an account that has ended.
const (
	eraseBinding = "KIT_ERASE_PERSON"
	erasedBefore = "KIT_ERASE_USER"
)

// leftBinding is the job that requests the erasure of a user whose account was in another database
// than DB.
const leftBinding = "KIT_USER_LEFT"

const (
	// eraseTimeout bounds one run over all capabilities.
	eraseTimeout = 30 * time.Minute
	// failureTimeout bounds the writing of why a run failed.
	failureTimeout = 10 * time.Second
	// maxFailure bounds the stored text of an error in bytes.
	maxFailure = 1024
)

// ErrNoErasure is what [Kit.Erasure] returns for a user whose erasure nobody
// has asked for.
var ErrNoErasure = errors.New("kit: no erasure of this user was asked for")

// exported is one record of an export.
type exported struct {
	Capability string `json:"capability"`
	Kind       string `json:"kind"`
	Record     any    `json:"record"`
}

// ExportUser writes everything that the capabilities hold about a user to w, as
// one JSON object: {"userId", "exportedAt", "records": [{"capability", "kind",
// "record"}]}. It is streamed: memory does not grow with the data. Files are referenced by the
// records, not embedded. After an error the output is incomplete and not valid JSON.
func (k *Kit) ExportUser(ctx context.Context, userID string, w io.Writer) error {
	person, err := k.person(ctx, userID)
	if err != nil {
		return err
	}
	head, err := json.Marshal(map[string]any{"userId": userID, "exportedAt": capability.Time{Time: k.clock()}})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s,\"records\":[", head[:len(head)-1]); err != nil {
		return err
	}
	separator := "\n"
	for _, c := range k.capabilities {
		if c.Export == nil {
			continue
		}
		err := c.Export(ctx, person, func(kind string, record any) error {
			line, err := json.Marshal(exported{c.Name, kind, record})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(w, "%s%s", separator, line)
			separator = ",\n"
			return err
		})
		if err != nil {
			return fmt.Errorf("export of %s: %w", c.Name, err)
		}
	}
	_, err = io.WriteString(w, "\n]}\n")
	return err
}

// person returns the user with the addresses that auth knows.
func (k *Kit) person(ctx context.Context, userID string) (capability.Person, error) {
	person := capability.Person{ID: userID}
	if err := capability.CheckUserID(userID); err != nil || k.Auth() == nil {
		return person, err
	}
	addresses, err := k.Auth().Addresses(ctx, userID)
	person.Emails = addresses
	return person, err
}

// Erasure says how far the erasure of a user is.
type Erasure struct {
	UserID      string          `json:"userId"`
	RequestedAt capability.Time `json:"requestedAt"`
	// FinishedAt is zero while the job is not done.
	FinishedAt capability.Time `json:"finishedAt,omitzero"`
	// Failing is the name of the capability that failed last, or "kit", and Error its error, at most
	// 1 KiB. Both are empty once the erasure is done.
	Failing string `json:"failing,omitempty"`
	Error   string `json:"error,omitempty"`
	// Capabilities says what each one removed so far, what it keeps, and why. Removals of a run
	// that was killed before it reported them are missing.
	Capabilities map[string]capability.Erasure `json:"capabilities,omitempty"`
}

// EraseUser requests the removal of everything that the capabilities hold about a user, and returns
// once the request is stored: a durable job does the work, and resumes after a kill. The user is
// locked out at once. Ledger and audit rows stay, with the user id as a pseudonym; [Kit.Erasure]
// says what else is kept, and why. It joins the transaction of ctx.
func (k *Kit) EraseUser(ctx context.Context, userID string) error {
	if err := capability.CheckUserID(userID); err != nil {
		return err
	}
	person := capability.Person{ID: userID}
	err := k.requestErasure(ctx, person)
	if errors.Is(err, auth.ErrUserNotFound) && !k.Database().InTransaction(ctx) {
		return k.requestErasure(ctx, person) // the account ended meanwhile: there is nobody to lock out
	}
	return err
}

// requestErasure enqueues the erasure of a person whose account may have ended; the addresses known
// now are kept until the erasure is done.
func (k *Kit) requestErasure(ctx context.Context, person capability.Person) error {
	db := k.Database()
	return db.InTx(ctx, func(ctx context.Context) error {
		if err := k.lockOut(ctx, person.ID); err != nil {
			return err
		}
		now, err := k.person(ctx, person.ID)
		if err != nil {
			return err
		}
		person.Emails = union(person.Emails, now.Emails)
		if err := insertErasure(ctx, db, person); err != nil {
			return err
		}
		// A run under way may have passed rows that exist now, so a new one replaces it.
		return k.Jobs().SetAlarm(ctx, eraseBinding, person.ID, db.Now(ctx), person.ID)
	})
}

// leaving returns the function that requests the erasure of a user whose account ends in a
// transaction of the host. If the host is on another database than DB, the request is stored in the
// host's database until a job passes it on: the erasure locks the user out in a transaction of DB,
// and the two transactions would wait for each other.
func (k *Kit) leaving(host capability.Host) func(context.Context, capability.Person) error {
	if host.DB == k.Database() {
		return k.requestErasure
	}
	return func(ctx context.Context, person capability.Person) error {
		if err := insertErasure(ctx, host.DB, person); err != nil {
			return err
		}
		return host.Jobs.SetAlarm(ctx, leftBinding, person.ID, host.DB.Now(ctx), person.ID)
	}
}

// left passes on the requests that wait in another database than DB.
func (k *Kit) left(db *database.DB) jobs.Binding {
	return jobs.Binding{Name: leftBinding, MaxAttempts: 100, Run: func(ctx context.Context, job jobs.Job) error {
		var person capability.Person
		if err := json.Unmarshal(job.Payload, &person.ID); err != nil {
			return err
		}
		var err error
		if person.Emails, err = erasedAddresses(ctx, db, person.ID); err != nil {
			return err
		}
		if err := k.requestErasure(ctx, person); err != nil {
			return err
		}
		_, err = db.Exec(ctx, `DELETE FROM kit_erasure WHERE user_id = $1`, person.ID)
		return err
	}}
}

// insertErasure records in a transaction that a person is to be erased, and adds the addresses to
// those of an earlier request that is not done.
func insertErasure(ctx context.Context, db *database.DB, person capability.Person) error {
	before, err := erasedAddresses(ctx, db, person.ID)
	if err != nil {
		return err
	}
	addresses, err := json.Marshal(union(person.Emails, before))
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `INSERT INTO kit_erasure (user_id, requested_at, report, addresses) VALUES ($1, $2, '', $3)
		ON CONFLICT (user_id) DO UPDATE SET finished_at = NULL, report = '', failing = '', error = '', addresses = excluded.addresses, requested_at = CASE
			WHEN excluded.requested_at > kit_erasure.requested_at THEN excluded.requested_at
			ELSE kit_erasure.requested_at + 1 END`, // each request has a time of its own
		person.ID, db.Now(ctx).UnixMilli(), string(addresses))
	return err
}

// erasedAddresses reads the addresses of the requests for an erasure that is not done.
func erasedAddresses(ctx context.Context, db *database.DB, userID string) (addresses []string, err error) {
	list, ok, err := database.Get(ctx, db, func(row database.Scanner) (list string, err error) {
		return list, row.Scan(&list)
	}, `SELECT addresses FROM kit_erasure WHERE user_id = $1 `+database.ForUpdate, userID)
	if err != nil || !ok || list == "" {
		return nil, err
	}
	return addresses, json.Unmarshal([]byte(list), &addresses)
}

// union returns the values that are in at least one of the lists, sorted.
func union(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// lockOut disables the user and ends their sessions, so that no new rows appear behind the job.
func (k *Kit) lockOut(ctx context.Context, userID string) error {
	if k.Auth() == nil {
		return nil
	}
	if _, err := k.Auth().User(ctx, userID); errors.Is(err, auth.ErrUserNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return k.Auth().DisableUser(ctx, userID)
}

// Erasure returns how far the erasure of a user is, or [ErrNoErasure].
func (k *Kit) Erasure(ctx context.Context, userID string) (Erasure, error) {
	db := k.Database()
	e, ok, err := database.Get(ctx, db, scanErasure,
		`SELECT user_id, requested_at, COALESCE(finished_at, 0), report, failing, error FROM kit_erasure WHERE user_id = $1`, userID)
	if err == nil && !ok {
		err = ErrNoErasure
	}
	return e, err
}

func scanErasure(row database.Scanner) (e Erasure, err error) {
	var requested, finished int64
	var report string
	if err := row.Scan(&e.UserID, &requested, &finished, &report, &e.Failing, &e.Error); err != nil {
		return e, err
	}
	e.RequestedAt = capability.Millis(requested)
	if finished != 0 {
		e.FinishedAt = capability.Millis(finished)
		e.Failing, e.Error = "", "" // a node that knows neither may have finished it
	}
	if report != "" {
		err = json.Unmarshal([]byte(report), &e.Capabilities)
	}
	return e, err
}

// erase runs the job. Auth is erased last, so that a run after a kill still finds the addresses by
// which other capabilities keep rows.
func (k *Kit) erase(ctx context.Context, job jobs.Job) error {
	var userID string
	if err := json.Unmarshal(job.Payload, &userID); err != nil {
		return err
	}
	begun, err := k.Erasure(ctx, userID)
	if err != nil {
		return err
	}
	person, err := k.erased(ctx, userID)
	if err != nil {
		return k.erasureFailed(ctx, begun, auth.Name, err)
	}
	report := begun.Capabilities
	if report == nil {
		report = make(map[string]capability.Erasure)
	}
	for _, c := range k.erasing() {
		done, err := k.eraseBy(ctx, begun, c, person)
		if err != nil {
			return err
		}
		report[c.Name] = merged(report[c.Name], done)
		if err := k.reportErasure(ctx, begun, report, time.Time{}); err != nil {
			return err
		}
	}
	if err := k.eraseKeys(ctx, userID); err != nil {
		return k.erasureFailed(ctx, begun, ownName, err)
	}
	return k.reportErasure(ctx, begun, report, k.Database().Now(ctx))
}

// eraseBy erases what one capability holds.
func (k *Kit) eraseBy(ctx context.Context, begun Erasure, c capability.Capability, person capability.Person) (done capability.Erasure, err error) {
	defer func() {
		if value := recover(); value != nil {
			_ = k.erasureFailed(ctx, begun, c.Name, fmt.Errorf("panic: %v", value))
			panic(value) // jobs logs it, with the stack
		}
	}()
	if done, err = c.Erase(ctx, person); err != nil {
		err = k.erasureFailed(ctx, begun, c.Name, err)
	}
	return done, err
}

// erasureFailed records the failure of a capability and returns it. A run that was stopped, or has
// lost its lease, is no failure.
func (k *Kit) erasureFailed(ctx context.Context, begun Erasure, name string, cause error) error {
	err := fmt.Errorf("erasure by %s: %w", name, cause)
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failureTimeout) // the run may have timed out
	defer cancel()
	reason := cause.Error()
	_, unwritten := k.Database().Exec(ctx, `UPDATE kit_erasure SET failing = $3, error = $4
		WHERE user_id = $1 AND requested_at = $2 AND finished_at IS NULL`,
		begun.UserID, begun.RequestedAt.UnixMilli(), name, text.Storable(reason[:min(len(reason), maxFailure)]))
	return errors.Join(err, unwritten)
}

// erased returns the person to erase, with the addresses that nobody else has proved meanwhile.
func (k *Kit) erased(ctx context.Context, userID string) (capability.Person, error) {
	person, err := k.person(ctx, userID)
	if err != nil || k.Auth() == nil {
		return person, err
	}
	addresses, err := erasedAddresses(ctx, k.Database(), userID)
	if err != nil {
		return person, err
	}
	for _, address := range addresses {
		owner, found, err := k.Auth().UserByEmail(ctx, address)
		if err != nil {
			return person, err
		}
		if !found || owner.ID == userID || !owner.EmailVerified {
			person.Emails = union(person.Emails, []string{address})
		}
	}
	return person, nil
}

// merged combines what a capability did in two runs, of which the first may have been interrupted.
func merged(before, done capability.Erasure) capability.Erasure {
	done.Removed += before.Removed
	for _, kept := range before.Kept {
		if !slices.Contains(done.Kept, kept) {
			done.Kept = append(done.Kept, kept)
		}
	}
	return done
}

// reportErasure writes what was done so far; a zero time says that more follows. If the erasure was
// requested again meanwhile, the run starts over, unless its job has been replaced.
func (k *Kit) reportErasure(ctx context.Context, begun Erasure, report map[string]capability.Erasure, finished time.Time) error {
	encoded, err := json.Marshal(report)
	if err != nil {
		return err
	}
	at := sql.NullInt64{Int64: finished.UnixMilli(), Valid: !finished.IsZero()}
	n, err := k.Database().Exec(ctx, `UPDATE kit_erasure SET finished_at = $3, report = $4,
			addresses = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN addresses ELSE '' END,
			failing = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN failing ELSE '' END,
			error = CASE WHEN CAST($3 AS BIGINT) IS NULL THEN error ELSE '' END
		WHERE user_id = $1 AND requested_at = $2`,
		begun.UserID, begun.RequestedAt.UnixMilli(), at, string(encoded))
	if err == nil && n == 0 {
		err = jobs.Snooze(0)
	}
	return err
}

// eraseKeys removes the responses kept under the user's idempotency keys.
func (k *Kit) eraseKeys(ctx context.Context, userID string) error {
	for _, b := range k.bindings {
		if err := mount.ForgetUser(ctx, b.db, userID); err != nil {
			return err
		}
	}
	return nil
}

// erasing lists the capabilities in the order of erasure: the last composed first, auth at the end,
// then events once more, as the end of the account is an event too.
func (k *Kit) erasing() (list []capability.Capability) {
	var last, told []capability.Capability
	for _, c := range slices.Backward(k.capabilities) {
		switch {
		case c.Erase == nil:
		case c.Name == auth.Name:
			last = append(last, c)
		case c.Name == events.Name:
			told = append(told, c)
			list = append(list, c)
		default:
			list = append(list, c)
		}
	}
	return append(append(list, last...), told...)
}
