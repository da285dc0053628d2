package leaderboard

import "github.com/kitbackend/kit/capability"

// The refusals of the leaderboard. A user id, limit or list of user ids out of bounds is
// kit/invalid_request.
var (
	// ErrBoardNotFound also refuses a window that never had an entry or was swept.
	ErrBoardNotFound = capability.NewError(404, "leaderboard/board_not_found", "There is no such board, or no such window of it.")
	ErrEntryNotFound = capability.NewError(404, "leaderboard/entry_not_found", "This player has no entry on the board.")
	// ErrBoardImmutable carries a [Definition], the stored one, in its details.
	ErrBoardImmutable = capability.NewError(409, "leaderboard/board_immutable", "The board has entries under another definition. A new definition needs a new key.")
	// ErrInvalidSchedule is wrapped by the error of New.
	ErrInvalidSchedule = capability.NewError(400, "leaderboard/invalid_schedule", "The schedule is not a cron expression of five fields.")
	// ErrScoreRejected also refuses a sum that would pass [MaxScore].
	ErrScoreRejected   = capability.NewError(422, "leaderboard/score_rejected", "The score is outside the bounds of the board.")
	ErrSubmitForbidden = capability.NewError(403, "leaderboard/submit_forbidden", "Scores of this board need the submit scope.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrBoardNotFound, ErrEntryNotFound, ErrBoardImmutable, ErrInvalidSchedule, ErrScoreRejected, ErrSubmitForbidden,
	}
}
