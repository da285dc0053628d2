package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	lib "modernc.org/sqlite/lib"
)

const (
	keepBytes = 16 << 10 // C memory for arguments that a statement keeps between two runs
	maxBytes  = 1 << 30  // SQLite's own limit for one value, here for all arguments of a statement together
)

// Stmt is a prepared statement. Bind starts a run, Reset ends it.
type Stmt struct {
	c        *Conn
	p        uintptr
	params   []int // the argument, from 0, that each of SQLite's parameters takes
	args     int   // number of arguments
	readOnly bool
	cached   bool
	running  bool
	buf      uintptr // C memory that holds text and blob arguments while the statement runs
	size     int
}

// ErrScript reports a text of several statements where one is needed.
var ErrScript = errors.New("sqlite: several statements in one text")

// Prepare returns the statement of a query, from the connection's cache if it is there and not running.
// A text of several statements is ErrScript.
func (c *Conn) Prepare(query string) (*Stmt, error) {
	s, known := c.cache[query]
	if known && !s.running {
		return s, nil
	}
	s, err := c.prepare(query)
	if err != nil {
		return nil, err
	}
	if !known && len(query) <= keepBytes {
		c.makeRoom()
		s.cached = true
		c.cache[strings.Clone(query)] = s
	}
	return s, nil
}

func (c *Conn) makeRoom() {
	for query, s := range c.cache {
		if len(c.cache) < cacheSize {
			return
		}
		if !s.running {
			s.finalize()
			delete(c.cache, query)
		}
	}
}

func (c *Conn) prepare(query string) (*Stmt, error) {
	text, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, text)
	tail := c.out + uintptr(pointerSize)
	if rc := lib.Xsqlite3_prepare_v3(c.tls, c.db, text, int32(len(query)+1), lib.SQLITE_PREPARE_PERSISTENT, c.out, tail); rc != lib.SQLITE_OK {
		return nil, c.fail(rc)
	}
	s := &Stmt{c: c, p: *(*uintptr)(pointer(c.out))}
	rest := query[min(len(query), int(*(*uintptr)(pointer(tail))-text)):]
	if s.p == 0 || !blank(rest) {
		s.finalize()
		return nil, ErrScript
	}
	s.readOnly = lib.Xsqlite3_stmt_readonly(c.tls, s.p) != 0
	for i := range lib.Xsqlite3_bind_parameter_count(c.tls, s.p) {
		name := libc.GoString(lib.Xsqlite3_bind_parameter_name(c.tls, s.p, i+1))
		n, err := strconv.Atoi(strings.TrimLeft(name, "$?")) // ?1 is what generators of code write
		if err != nil || n < 1 {
			s.finalize()
			return nil, fmt.Errorf("sqlite: parameter %q, want $1 or ?1 and so on", name)
		}
		s.params = append(s.params, n-1)
		s.args = max(s.args, n)
	}
	return s, nil
}

// blank reports whether text holds nothing but space, semicolons and comments to the end of a line.
func blank(text string) bool {
	for text = strings.TrimLeft(text, " \t\r\n;"); strings.HasPrefix(text, "--"); text = strings.TrimLeft(text, " \t\r\n;") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text == ""
}

// ReadOnly reports whether the statement changes nothing.
func (s *Stmt) ReadOnly() bool { return s.readOnly }

// Bind starts a run with these arguments. Whatever it returns, Reset must follow.
func (s *Stmt) Bind(ctx context.Context, args []any) error {
	s.running = true
	if err := s.c.Enter(ctx); err != nil {
		return err
	}
	if len(args) != s.args {
		return fmt.Errorf("sqlite: %d arguments for a statement that takes %d", len(args), s.args)
	}
	args, err := Values(args)
	if err != nil {
		return err
	}
	need := 1 // an empty text needs an address too
	for _, i := range s.params {
		switch v := args[i].(type) {
		case string:
			need += len(v)
		case []byte:
			need += len(v)
		}
	}
	if need > maxBytes {
		return &Error{Code: lib.SQLITE_TOOBIG, Message: "arguments too big"}
	}
	if err := s.room(need); err != nil {
		return err
	}
	at := s.buf
	for i, arg := range s.params {
		if err := s.bind(int32(i+1), args[arg], &at); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stmt) room(need int) error {
	if need <= s.size {
		return nil
	}
	libc.Xfree(s.c.tls, s.buf)
	s.size = max(need, 64)
	if s.buf = libc.Xmalloc(s.c.tls, types.Size_t(s.size)); s.buf == 0 {
		s.size = 0
		return errNoMemory
	}
	return nil
}

// bind sets parameter i. Text and blobs are copied to *at, which moves on; SQLite reads them there.
func (s *Stmt) bind(i int32, arg any, at *uintptr) error {
	tls, rc := s.c.tls, int32(lib.SQLITE_OK)
	switch v := arg.(type) {
	case nil:
		rc = lib.Xsqlite3_bind_null(tls, s.p, i)
	case int64:
		rc = lib.Xsqlite3_bind_int64(tls, s.p, i, v)
	case int:
		rc = lib.Xsqlite3_bind_int64(tls, s.p, i, int64(v))
	case float64:
		rc = lib.Xsqlite3_bind_double(tls, s.p, i, v)
	case bool:
		n := int64(0)
		if v {
			n = 1
		}
		rc = lib.Xsqlite3_bind_int64(tls, s.p, i, n)
	case string:
		copy(bytesAt(*at, len(v)), v)
		rc = lib.Xsqlite3_bind_text(tls, s.p, i, *at, int32(len(v)), 0)
		*at += uintptr(len(v))
	case []byte:
		copy(bytesAt(*at, len(v)), v)
		rc = lib.Xsqlite3_bind_blob(tls, s.p, i, *at, int32(len(v)), 0)
		*at += uintptr(len(v))
	}
	if rc != lib.SQLITE_OK {
		return s.c.fail(rc)
	}
	return nil
}

// Values returns args as the types that bind takes. Text that PostgreSQL would refuse is refused here too.
func Values(args []any) ([]any, error) {
	copied := false
	for i, arg := range args {
		switch v := arg.(type) {
		case nil, int64, int, float64, bool:
			continue
		case []byte:
			if v != nil {
				continue
			}
		case string:
			if strings.IndexByte(v, 0) >= 0 || !utf8.ValidString(v) {
				return nil, fmt.Errorf("sqlite: argument %d holds a NUL byte or invalid UTF-8", i+1)
			}
			continue
		}
		value, err := value(arg)
		if err != nil {
			return nil, fmt.Errorf("sqlite: argument %d: %w", i+1, err)
		}
		if !copied {
			args, copied = slices.Clone(args), true
		}
		args[i] = value
	}
	return args, nil
}

func value(arg any) (any, error) {
	v, err := driver.DefaultParameterConverter.ConvertValue(arg)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, int64, float64, bool, string:
		return v, nil
	case []byte:
		if v == nil {
			return nil, nil
		}
		return v, nil
	}
	return nil, fmt.Errorf("%T cannot be stored; times are unix milliseconds", arg)
}

// Step runs to the next row and reports whether there is one.
func (s *Stmt) Step() (bool, error) {
	switch rc := lib.Xsqlite3_step(s.c.tls, s.p); rc {
	case lib.SQLITE_ROW:
		return true, nil
	case lib.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.fail(rc)
	}
}

// Reset ends a run. It may be called more than once.
func (s *Stmt) Reset() {
	if !s.running {
		return
	}
	s.running = false
	if !s.cached {
		s.finalize()
		return
	}
	lib.Xsqlite3_reset(s.c.tls, s.p)
	if s.size > keepBytes {
		lib.Xsqlite3_clear_bindings(s.c.tls, s.p)
		libc.Xfree(s.c.tls, s.buf)
		s.buf, s.size = 0, 0
	}
}

func (s *Stmt) finalize() {
	lib.Xsqlite3_finalize(s.c.tls, s.p)
	libc.Xfree(s.c.tls, s.buf)
	s.p, s.buf, s.size = 0, 0, 0
}
