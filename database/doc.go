// Package database is the kit's store: one SQL text on SQLite, in memory or in a file, and on PostgreSQL.
//
// [OpenMemory], [OpenFile] and postgres.Open return a [DB]; [DB.Migrate] brings its schema up to date. [DB.InTx] writes
// in a transaction, [DB.Read] reads on a snapshot, and the transaction travels in the context:
// every call with the context of a callback takes part, also in packages that do not know of one
// another. A single statement needs neither. A nil error of InTx or Exec means that the change is
// durable.
//
// On SQLite transactions that come in at the same time share a commit, one disk sync for all; each still fails or
// succeeds by itself, and returns when the shared commit is on the disk. One process may open a file.
//
// Code for database/sql joins a transaction by [DB.SQL]. [Copy] moves the rows of a SQLite database to PostgreSQL.
//
// # Rules of callbacks
//
// A callback may run more than once: after a conflict or a deadlock on PostgreSQL, on SQLite after
// another callback in the shared commit failed, met a disk error or panicked, and always in test
// mode. Therefore:
//
//   - Outputs are assigned, not appended to, and set anew in each run.
//   - No I/O, channels or sleep: others wait meanwhile. There is a limit of 10 seconds.
//   - Time comes from [DB.Now]. Ids may be drawn inside, but those of a run that was rolled back
//     must not leave it.
//   - Work that must follow a commit goes to [AfterCommit].
//   - Every call on the DB inside gets the callback's context, in the callback's goroutine or one
//     it waits for. Any other context is another transaction, which waits for this one. The
//     context is of no use after the callback.
//   - Rows are locked in the order of their keys, and a row that is to be changed is read with
//     /*pg FOR UPDATE */.
//   - After a refused statement the callback returns its error. A statement that may be refused
//     in normal operation is written as ON CONFLICT DO NOTHING or as a guarded UPDATE, and the
//     rows are counted. A transaction whose statement or joined callback failed does not commit,
//     even if the callback returns nil.
//
// On SQLite callbacks run one at a time, in a goroutine of the package; a panic, or [runtime.Goexit], is met again in
// the goroutine of the caller, by running the callback there.
//
// # One text
//
// Parameters are $1, $2, …, in any order and more than once. A comment /*pg … */ is live on PostgreSQL only. Ids are
// TEXT, times BIGINT unix milliseconds, amounts BIGINT below 2^53, choices TEXT with a CHECK, JSON is TEXT that is never
// queried; every CHECK has a name. SELECT … ON CONFLICT needs WHERE true, sums need CAST(sum(x) AS BIGINT), booleans
// stand by themselves (WHERE ok), lists are [InList]. NULLs sort first on SQLite and last on PostgreSQL.
// Text must be valid UTF-8 without NUL.
//
// Errors to tell apart are [ConstraintError], [ErrUnknownOutcome], [ErrConflict], [ErrUnavailable] and [ErrFull],
// [ErrClosed], [ErrUnsupported] and those of the context.
//
// # Files
//
// SQLite files that this package makes give back free pages, while nothing is written, once they are a quarter of the
// file and over 4 MiB. Older files keep theirs for new rows; a copy that [DB.Backup] makes is as small as it can be.
package database
