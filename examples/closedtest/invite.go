package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbackend/kit/testers"
)

// invite makes a running closedtest invite people.
func invite(ctx context.Context, out io.Writer, base string, addresses []string) error {
	if len(addresses) == 0 {
		return errors.New("closedtest: name the addresses to invite")
	}
	form := url.Values{"addresses": {strings.Join(addresses, " ")}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/command/invite", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("closedtest: %s: %s", resp.Status, text)
	}
	var result testers.InviteResult
	if err := json.Unmarshal(text, &result); err != nil {
		return err
	}
	for _, m := range result.Invited {
		fmt.Fprintf(out, "invited %s\n", m.Email)
	}
	for _, refused := range result.Refused {
		fmt.Fprintf(out, "refused %s: %s\n", refused.Email, refused.Code)
	}
	fmt.Fprintf(out, "the mails are at %s/__kit/mailbox\n", base)
	return nil
}

// command serves the invitations of the command line: it returns who was invited as JSON.
func (d *desk) command(w http.ResponseWriter, r *http.Request) {
	result, err := d.inviteAll(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // fails only if the caller has disconnected
}
