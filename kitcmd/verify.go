package kitcmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/kitbackend/kit/audit"
)

// proof is the result of verifying one capability.
type proof struct {
	Name string `json:"name"`
	// Checked states the numbers of rows or objects that were read.
	Checked string `json:"checked"`
	// Findings lists violations, at most 100; it is empty if there are none.
	Findings []string `json:"findings"`
}

// anchors are the values of the flag -anchor, which may be repeated.
type anchors []audit.Anchor

func (a *anchors) String() string { return "" }

// Set parses an anchor in the form that a checkpoint prints.
func (a *anchors) Set(text string) error {
	anchor, err := audit.ParseAnchor(text)
	*a = append(*a, anchor)
	return err
}

func (p *program) verify(flags *flag.FlagSet) action {
	var known anchors
	flags.Var(&known, "anchor", "a `checkpoint` that the audit trail must have, as audit.Checkpoint prints it; may be repeated")
	return func(ctx context.Context, _ []string) error {
		proofs := []proof{}
		for _, prove := range []func(context.Context, []audit.Anchor) (*proof, error){
			p.verifyLedger, p.verifyBoards, p.verifyAudit, p.verifyStorage,
		} {
			done, err := prove(ctx, known)
			if err != nil {
				return err
			}
			if done != nil {
				proofs = append(proofs, *done)
			}
		}
		var found error
		for _, pr := range proofs {
			if len(pr.Findings) > 0 {
				found = ErrFound
			}
		}
		if done, err := p.printJSON(proofs); done {
			return errors.Join(err, found)
		}
		for _, pr := range proofs {
			state := "no findings"
			if n := len(pr.Findings); n > 0 {
				state = fmt.Sprintf("%d findings\n  %s", n, strings.Join(pr.Findings, "\n  "))
			}
			fmt.Fprintf(p.stdout, "%s: %s: %s\n", pr.Name, pr.Checked, state)
		}
		return found
	}
}

func (p *program) verifyLedger(ctx context.Context, _ []audit.Anchor) (*proof, error) {
	if p.kit.Ledger() == nil {
		return nil, nil
	}
	report, err := p.kit.Ledger().Verify(ctx)
	if err != nil {
		return nil, err
	}
	done := &proof{Name: "ledger", Findings: []string{},
		Checked: fmt.Sprintf("%d accounts, %d transactions, %d holds", report.Accounts, report.Transactions, report.Holds)}
	for _, f := range report.Findings {
		done.Findings = append(done.Findings, fmt.Sprintf("%s: the rule does not hold: %s", f.Subject, f.Rule))
	}
	return done, nil
}

func (p *program) verifyBoards(ctx context.Context, _ []audit.Anchor) (*proof, error) {
	if p.kit.Leaderboard() == nil {
		return nil, nil
	}
	report, err := p.kit.Leaderboard().Verify(ctx)
	if err != nil {
		return nil, err
	}
	done := &proof{Name: "leaderboard", Findings: []string{},
		Checked: fmt.Sprintf("%d windows, %d entries", report.Windows, report.Entries)}
	for _, f := range report.Findings {
		done.Findings = append(done.Findings, fmt.Sprintf("%s %s: a count of level %d is %d instead of %d",
			f.Board, f.Window, f.Level, f.Stored, f.Actual))
	}
	return done, nil
}

func (p *program) verifyAudit(ctx context.Context, known []audit.Anchor) (*proof, error) {
	if p.kit.Audit() == nil {
		return nil, nil
	}
	report, err := p.kit.Audit().Verify(ctx, known...)
	if err != nil {
		return nil, err
	}
	done := &proof{Name: "audit", Findings: []string{}, Checked: fmt.Sprintf("%d sealed events, %d waiting, %d checkpoints",
		report.Sealed, report.Waiting, report.Checkpoints)}
	if report.Break != nil {
		done.Findings = append(done.Findings, report.Break.String())
	}
	return done, nil
}

func (p *program) verifyStorage(ctx context.Context, _ []audit.Anchor) (*proof, error) {
	if p.kit.Storage() == nil {
		return nil, nil
	}
	report, err := p.kit.Storage().Verify(ctx)
	if err != nil {
		return nil, err
	}
	done := &proof{Name: "storage", Findings: []string{}, Checked: fmt.Sprintf("%d objects", report.Objects)}
	for _, f := range report.Findings {
		done.Findings = append(done.Findings, f.Object+": "+f.Reason)
	}
	return done, nil
}
