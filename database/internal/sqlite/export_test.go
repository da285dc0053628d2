package sqlite

import lib "modernc.org/sqlite/lib"

// Parsed returns how often SQLite has parsed the statement anew.
func (s *Stmt) Parsed() int {
	return int(lib.Xsqlite3_stmt_status(s.c.tls, s.p, lib.SQLITE_STMTSTATUS_REPREPARE, 0))
}
