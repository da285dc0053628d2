package testers

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// maxImported and maxImportedBytes limit the size of an imported roster.
const (
	maxImported      = 2000
	maxImportedBytes = 1 << 20
)

// Import invites the people of a CSV file. With a header line it has a column "email" and
// optionally a column "name"; without one it has addresses only. At most 2,000 lines and 1 MiB.
// Refuses as [Testers.Invite]; refused lines are reported in the result.
func (t *Testers) Import(ctx context.Context, cohortID string, file io.Reader) (InviteResult, error) {
	people, err := readRoster(io.LimitReader(file, maxImportedBytes+1))
	all := InviteResult{Invited: []Member{}, Refused: []Refused{}}
	if err != nil {
		return all, err
	}
	for _, p := range people {
		some, err := t.Invite(ctx, cohortID, []Tester{p})
		refusal := capability.AsError(err)
		switch {
		case err == nil:
			all.Invited = append(all.Invited, some.Invited...)
		case refusal.Status >= 500 || ErrCohortNotFound.Is(refusal) || ErrCohortClosed.Is(refusal):
			return all, err
		default:
			all.Refused = append(all.Refused, Refused{p.Email, refusal.Code})
		}
	}
	return all, nil
}

func readRoster(file io.Reader) (people []Tester, err error) {
	raw, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxImportedBytes {
		return nil, capability.ErrInvalidRequest.Saying("A roster is at most %d bytes.", maxImportedBytes)
	}
	reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(raw), "\ufeff")))
	reader.FieldsPerRecord, reader.TrimLeadingSpace = -1, true
	address, name := 0, -1
	for first := true; ; first = false {
		record, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return people, nil
		}
		if err != nil {
			return nil, capability.ErrInvalidRequest.Saying("The roster is not CSV.").Because(err)
		}
		if i := column(record, "email"); first && i >= 0 {
			address, name = i, column(record, "name")
			continue
		}
		if len(people) == maxImported {
			return nil, capability.ErrInvalidRequest.Saying("A roster has at most %d lines.", maxImported)
		}
		if len(record) <= address || strings.TrimSpace(record[address]) == "" {
			continue
		}
		p := Tester{Email: strings.TrimSpace(record[address])}
		if name >= 0 && name < len(record) {
			p.Name = strings.TrimSpace(record[name])
		}
		people = append(people, p)
	}
}

func column(record []string, name string) int {
	return slices.IndexFunc(record, func(text string) bool { return strings.EqualFold(strings.TrimSpace(text), name) })
}
