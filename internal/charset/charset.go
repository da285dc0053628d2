// Package charset decodes the character sets of mails, all that golang.org/x/text/encoding/ianaindex
// and htmlindex know by name. The packages of golang.org/x/text/encoding set up variables before
// main, so every character set would be part of every program that imports them, encoders included;
// this package has one file of tables, which is linked where a decoder is called.
package charset

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/emersion/go-message"
)

// Decode converts text in a named character set to UTF-8; ok is false if the name is not known. What
// cannot be decoded becomes U+FFFD.
func Decode(name string, text []byte) (decoded []byte, ok bool) {
	decode := find(strings.ToLower(strings.Trim(name, `"' `)))
	if decode == nil {
		return nil, false
	}
	return decode(text), true
}

// Reader converts text in a named character set to UTF-8, all of it when it is first read.
func Reader(name string, text io.Reader) (io.Reader, error) {
	decode := find(strings.ToLower(strings.Trim(name, `"' `)))
	if decode == nil {
		return nil, fmt.Errorf("charset: unknown charset %.40q", name)
	}
	return &reader{text: text, decode: decode}, nil
}

// reader reads decoded text; once it is decoded, decode is nil.
type reader struct {
	text    io.Reader
	decode  decoder
	decoded []byte
	end     error
}

func (r *reader) Read(p []byte) (int, error) {
	if r.decode != nil {
		text, err := io.ReadAll(r.text)
		if r.end = err; err == nil {
			r.end = io.EOF
		}
		r.decoded, r.decode = r.decode(text), nil
	}
	if len(r.decoded) == 0 {
		return 0, r.end
	}
	n := copy(p, r.decoded)
	r.decoded = r.decoded[n:]
	return n, nil
}

var setReader sync.Once

// ReadMail reads a mail as [message.Read] does, and decodes character sets as [Reader] does unless
// the application has go-message decode them otherwise.
func ReadMail(mail io.Reader) (*message.Entity, error) {
	setReader.Do(func() {
		if message.CharsetReader == nil {
			message.CharsetReader = Reader
		}
	})
	return message.Read(mail)
}
