package testers

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
)

// Feedback is a support thread that a tester wrote to while on the roster.
type Feedback struct {
	MemberID string          `json:"memberId"`
	ThreadID string          `json:"threadId"`
	At       capability.Time `json:"at"`
}

// received records that a tester wrote to support, in the transaction of the message. A mail counts
// only if it proved its origin, since only then it has a user.
func (t *Testers) received(ctx context.Context, e hooks.SupportReceived) error {
	if e.UserID == "" {
		return nil
	}
	if err := t.linkUser(ctx, e.UserID); err != nil {
		return err
	}
	members, err := t.store.membersOfUser(ctx, e.UserID)
	if err != nil {
		return err
	}
	for _, m := range members {
		if !m.State.onRoster() {
			continue
		}
		if err := t.store.insertFeedback(ctx, m.ID, e.ThreadID, t.db.Now(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// ListFeedback lists the support threads that a member wrote to, newest first. Refuses with
// kit/invalid_request.
func (t *Testers) ListFeedback(ctx context.Context, memberID string, page capability.Page) (capability.Items[Feedback], error) {
	var below string
	if err := capability.CheckText("memberId", memberID, 1, id.Len); err != nil {
		return capability.Items[Feedback]{}, err
	}
	if _, err := page.After(&below); err != nil {
		return capability.Items[Feedback]{}, err
	}
	page = page.Bounded()
	rows, err := t.store.feedbackOf(ctx, memberID, below, page.Limit+1)
	if err != nil {
		return capability.Items[Feedback]{}, err
	}
	return capability.Paged(page, rows, func(f Feedback) []any { return []any{f.ThreadID} }), nil
}

// countFeedback sets the number of threads that members wrote to.
func (t *Testers) countFeedback(ctx context.Context, members []Member) error {
	ids := make([]string, 0, len(members))
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	counts, err := t.store.feedbackCounts(ctx, ids)
	for i := range members {
		members[i].FeedbackThreads = counts[members[i].ID]
	}
	return err
}
