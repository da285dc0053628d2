package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Scan copies the columns of the row into dest: pointers to string, []byte, bool, the integer and float types, types
// made of them, any, a [sql.Scanner], or a pointer to a pointer, which becomes nil for NULL.
func (s *Stmt) Scan(dest []any) error {
	if n := int(lib.Xsqlite3_data_count(s.c.tls, s.p)); len(dest) != n {
		return fmt.Errorf("sqlite: %d destinations for %d columns", len(dest), n)
	}
	for i := range dest {
		if err := s.scan(int32(i), dest[i]); err != nil {
			return fmt.Errorf("sqlite: column %d: %w", i+1, err)
		}
	}
	return nil
}

// Columns returns the names of the columns.
func (s *Stmt) Columns() []string {
	names := make([]string, lib.Xsqlite3_column_count(s.c.tls, s.p))
	for i := range names {
		names[i] = libc.GoString(lib.Xsqlite3_column_name(s.c.tls, s.p, int32(i)))
	}
	return names
}

// Values returns the columns of the row as int64, float64, string, []byte or nil.
func (s *Stmt) Values() []any {
	values := make([]any, lib.Xsqlite3_data_count(s.c.tls, s.p))
	for i := range values {
		values[i] = s.value(int32(i))
	}
	return values
}

func (s *Stmt) scan(i int32, dest any) (err error) {
	switch d := dest.(type) {
	case *string:
		*d, err = s.text(i)
	case *int64:
		*d, err = s.integer(i)
	case *int:
		var v int64
		v, err = s.integer(i)
		*d = int(v)
	case *bool:
		var v int64
		v, err = s.integer(i)
		*d = v != 0
	case *float64:
		*d, err = s.float(i)
	case *[]byte:
		*d, err = s.blob(i)
	case *any:
		*d = s.value(i)
	case sql.Scanner:
		err = d.Scan(s.value(i))
	default:
		err = s.reflect(i, dest)
	}
	return err
}

func (s *Stmt) kind(i int32) int32 { return lib.Xsqlite3_column_type(s.c.tls, s.p, i) }

func (s *Stmt) integer(i int32) (int64, error) {
	if s.kind(i) != lib.SQLITE_INTEGER {
		return 0, s.mismatch(i, "an integer")
	}
	return lib.Xsqlite3_column_int64(s.c.tls, s.p, i), nil
}

func (s *Stmt) float(i int32) (float64, error) {
	if k := s.kind(i); k != lib.SQLITE_FLOAT && k != lib.SQLITE_INTEGER {
		return 0, s.mismatch(i, "a number")
	}
	return lib.Xsqlite3_column_double(s.c.tls, s.p, i), nil
}

func (s *Stmt) text(i int32) (string, error) {
	if s.kind(i) != lib.SQLITE_TEXT {
		return "", s.mismatch(i, "text")
	}
	p := lib.Xsqlite3_column_text(s.c.tls, s.p, i)
	if p == 0 {
		return "", errNoMemory
	}
	return string(bytesAt(p, int(lib.Xsqlite3_column_bytes(s.c.tls, s.p, i)))), nil
}

func (s *Stmt) blob(i int32) ([]byte, error) {
	switch s.kind(i) {
	case lib.SQLITE_NULL:
		return nil, nil
	case lib.SQLITE_TEXT, lib.SQLITE_BLOB:
		p := lib.Xsqlite3_column_blob(s.c.tls, s.p, i)
		n := int(lib.Xsqlite3_column_bytes(s.c.tls, s.p, i))
		v := make([]byte, n)
		if n > 0 {
			copy(v, bytesAt(p, n))
		}
		return v, nil
	}
	return nil, s.mismatch(i, "bytes")
}

func (s *Stmt) value(i int32) any {
	switch s.kind(i) {
	case lib.SQLITE_INTEGER:
		return lib.Xsqlite3_column_int64(s.c.tls, s.p, i)
	case lib.SQLITE_FLOAT:
		return lib.Xsqlite3_column_double(s.c.tls, s.p, i)
	case lib.SQLITE_TEXT:
		v, _ := s.text(i)
		return v
	case lib.SQLITE_BLOB:
		v, _ := s.blob(i)
		return v
	}
	return nil
}

var kinds = map[int32]string{lib.SQLITE_INTEGER: "an integer", lib.SQLITE_FLOAT: "a float", lib.SQLITE_TEXT: "text",
	lib.SQLITE_BLOB: "bytes", lib.SQLITE_NULL: "NULL"}

func (s *Stmt) mismatch(i int32, want string) error {
	return fmt.Errorf("%s where %s is wanted", kinds[s.kind(i)], want)
}

// reflect scans into what has no case of its own.
func (s *Stmt) reflect(i int32, dest any) error {
	p := reflect.ValueOf(dest)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return errors.New("the destination is not a pointer")
	}
	v := p.Elem()
	switch v.Kind() {
	case reflect.Pointer:
		if s.kind(i) == lib.SQLITE_NULL {
			v.SetZero()
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return s.scan(i, v.Interface())
	case reflect.String:
		text, err := s.text(i)
		v.SetString(text)
		return err
	case reflect.Bool:
		n, err := s.integer(i)
		v.SetBool(n != 0)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := s.integer(i)
		if err == nil && v.OverflowInt(n) {
			err = fmt.Errorf("%d does not fit", n)
		}
		v.SetInt(n)
		return err
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := s.integer(i)
		if err == nil && (n < 0 || v.OverflowUint(uint64(n))) {
			err = fmt.Errorf("%d does not fit", n)
		}
		v.SetUint(uint64(n))
		return err
	case reflect.Float32, reflect.Float64:
		f, err := s.float(i)
		if err == nil && v.Kind() == reflect.Float32 && math.Abs(f) > math.MaxFloat32 {
			err = fmt.Errorf("%g does not fit", f)
		}
		v.SetFloat(f)
		return err
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b, err := s.blob(i)
			v.SetBytes(b)
			return err
		}
	}
	return fmt.Errorf("cannot scan into %T", dest)
}
