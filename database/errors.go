package database

import (
	"errors"
	"fmt"
)

// Errors that are returned after the package has made all the retries it can.
var (
	// ErrUnknownOutcome reports a connection lost while a commit was under way: the transaction took effect or it did
	// not. The caller finds out by reading, or repeats under an idempotent key.
	ErrUnknownOutcome = errors.New("database: connection lost during commit, outcome unknown")
	// ErrConflict reports that a transaction kept colliding with others until its runs were spent.
	ErrConflict = errors.New("database: transaction conflict, retries spent")
	// ErrUnavailable reports that the database cannot be used now, through no fault of the statement: the disk is full
	// or cannot be written, the connection is lost, no connection is free, or another transaction holds a lock too
	// long. The transaction had no effect. The same call may succeed later.
	ErrUnavailable = errors.New("database: unavailable")
	// ErrFull is an [ErrUnavailable] because the disk is full.
	ErrFull = fmt.Errorf("%w: the disk is full", ErrUnavailable)
	// ErrClosed reports a call on a closed DB.
	ErrClosed = errors.New("database: closed")
	// ErrUnsupported reports an operation that this database does not have.
	ErrUnsupported = errors.New("database: not supported by this database")
)

var (
	errDisk        = errors.New("database: the disk fails")
	errQueryWrites = errors.New("database: outside a transaction a query only reads; write with Exec or inside InTx")
	errLeak        = errors.New("database: closed while rows or a Read were still in use")
)

// ConstraintKind says which kind of constraint refused a row.
type ConstraintKind int

// The kinds of constraint.
const (
	Unique ConstraintKind = iota + 1 // also a primary key
	Check
	ForeignKey
	NotNull
)

// String returns the kind as SQL spells it, in lower case.
func (k ConstraintKind) String() string {
	switch k {
	case Unique:
		return "unique"
	case Check:
		return "check"
	case ForeignKey:
		return "foreign key"
	case NotNull:
		return "not null"
	}
	return "unknown"
}

// ConstraintError is a refusal by a constraint, found with [errors.As] in the error of a statement
// or a transaction. Kind comes from the driver's code. Name is the constraint's name; SQLite gives
// it for CHECK only.
type ConstraintError struct {
	Kind ConstraintKind
	Name string
	Err  error // the driver's error
}

// Error returns the driver's text.
func (e *ConstraintError) Error() string {
	return "database: " + e.Kind.String() + " violation: " + e.Err.Error()
}

// Unwrap returns the driver's error.
func (e *ConstraintError) Unwrap() error { return e.Err }
