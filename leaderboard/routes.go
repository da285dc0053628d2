package leaderboard

import (
	"errors"
	"strconv"

	"github.com/kitbackend/kit/capability"
)

// Bounds of request bodies, in bytes.
const (
	maxScoreBody   = 4 << 10
	maxSegmentBody = 64 << 10
	maxHiddenBody  = 1 << 10
)

func (l *Leaderboard) routes() []capability.Route {
	user, admin := capability.User(), capability.UserWithScope(l.cfg.AdminScope)
	window := capability.Param{Name: "window", Summary: "The key of a window; without it the open one."}
	return capability.Mount(l.cfg.BasePath,
		capability.Route{Method: "GET", Path: "", Guard: user,
			Summary: "The boards, with the keys of their closed windows.",
			Handle:  capability.JSON(200, l.listBoards)},
		capability.Route{Method: "POST", Path: "/:board", Guard: user.Conditional("submitScope if serverAuthoritative"), Idempotent: true,
			Summary: "Submit a score.", MaxBody: maxScoreBody,
			Refusals: []*capability.Error{ErrBoardNotFound, ErrBoardImmutable, ErrScoreRejected, ErrSubmitForbidden},
			Handle:   capability.JSON(200, l.postScore)},
		capability.Route{Method: "GET", Path: "/:board/top", Guard: user,
			Summary:  "The entries of a window, the best first.",
			Refusals: []*capability.Error{ErrBoardNotFound},
			Query:    []capability.Param{window},
			Handle:   capability.List(l.listTop)},
		capability.Route{Method: "GET", Path: "/:board/me", Guard: user,
			Summary:  "The caller's own entry and rank.",
			Refusals: []*capability.Error{ErrBoardNotFound, ErrEntryNotFound},
			Query:    []capability.Param{window},
			Handle:   capability.JSON(200, l.getMe)},
		capability.Route{Method: "GET", Path: "/:board/around", Guard: user,
			Summary:  "The entries around the caller's own.",
			Refusals: []*capability.Error{ErrBoardNotFound, ErrEntryNotFound},
			Query:    []capability.Param{window, {Name: "limit", Summary: "How many entries; 11 where it is left out."}},
			Handle:   capability.JSON(200, l.getAround)},
		capability.Route{Method: "POST", Path: "/:board/segment", Guard: user,
			Summary: "The entries of up to 80 players, with their ranks on the whole board.", MaxBody: maxSegmentBody,
			Refusals: []*capability.Error{ErrBoardNotFound},
			Query:    []capability.Param{window},
			Handle:   capability.JSON(200, l.postSegment)},
		capability.Route{Method: "PUT", Path: "/:board/me/visibility", Guard: user,
			Summary: "Hide the caller from other players, or show the caller again.", MaxBody: maxHiddenBody,
			Refusals: []*capability.Error{ErrBoardNotFound, ErrEntryNotFound},
			Handle:   capability.JSON(200, l.putVisibility)},
		capability.Route{Method: "PUT", Path: "/:board/entries/:userId/hidden", Guard: admin,
			Summary: "Hide a player from other players, or take that back.", MaxBody: maxHiddenBody,
			Refusals: []*capability.Error{ErrBoardNotFound, ErrEntryNotFound},
			Handle:   capability.JSON(200, l.putHidden)},
		capability.Route{Method: "DELETE", Path: "/:board/entries/:userId", Guard: admin,
			Summary:  "Remove a player's entry.",
			Refusals: []*capability.Error{ErrBoardNotFound, ErrEntryNotFound},
			Query:    []capability.Param{window},
			Handle:   capability.JSON(204, l.deleteEntry)},
	)
}

// boardsBody is the response of the list of boards: all of them, on one page.
type boardsBody struct {
	Items      []Info  `json:"items"`
	NextCursor *string `json:"nextCursor"`
}

func (l *Leaderboard) listBoards(c *capability.Call, _ capability.None) (boardsBody, error) {
	items, err := l.Boards(c.Context())
	return boardsBody{Items: items}, err
}

// scoreBody is the request body of a submission. Only the submit scope allows userId.
type scoreBody struct {
	Score  *int64  `json:"score"`
	UserID *string `json:"userId,omitempty"`
}

func (l *Leaderboard) postScore(c *capability.Call, body scoreBody) (Standing, error) {
	b, err := l.board(c.Param("board"))
	if err != nil {
		return Standing{}, err
	}
	s := Submission{Board: b.Key, UserID: c.Caller.UserID}
	if (*b.ServerAuthoritative || body.UserID != nil) && !c.Caller.HasScope(l.cfg.SubmitScope) {
		return Standing{}, ErrSubmitForbidden
	}
	if body.UserID != nil {
		s.UserID = *body.UserID
	}
	if body.Score == nil {
		return Standing{}, capability.ErrInvalidRequest.Saying("score is missing.")
	}
	s.Score = *body.Score
	entry, err := l.Submit(c.Context(), s)
	if err != nil {
		return Standing{}, err
	}
	standing, err := l.Me(c.Context(), View{Board: b.Key}, s.UserID)
	if errors.Is(err, ErrEntryNotFound) { // removed since, or the window has closed
		return Standing{Entry: entry}, nil
	}
	return standing, err
}

// viewOf returns the view of the board in the path and the window in the query.
func viewOf(c *capability.Call) View {
	return View{Board: c.Param("board"), Window: c.Query("window")}
}

func (l *Leaderboard) listTop(c *capability.Call, page capability.Page) (capability.Items[Ranked], error) {
	return l.ListTop(c.Context(), viewOf(c), page)
}

func (l *Leaderboard) getMe(c *capability.Call, _ capability.None) (Standing, error) {
	return l.Me(c.Context(), viewOf(c), c.Caller.UserID)
}

// defaultAround is the limit of a request that has none.
const defaultAround = 11

func (l *Leaderboard) getAround(c *capability.Call, _ capability.None) (Neighbours, error) {
	limit := defaultAround
	if text := c.Query("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			n = 0 // out of bounds
		}
		limit = n
	}
	return l.Around(c.Context(), viewOf(c), c.Caller.UserID, limit)
}

type segmentBody struct {
	UserIDs []string `json:"userIds"`
}

func (l *Leaderboard) postSegment(c *capability.Call, body segmentBody) (Neighbours, error) {
	if body.UserIDs == nil {
		return Neighbours{}, capability.ErrInvalidRequest.Saying("userIds is missing.")
	}
	return l.Segment(c.Context(), viewOf(c), body.UserIDs...)
}

type hiddenBody struct {
	Hidden *bool `json:"hidden"`
}

func (b hiddenBody) value() (bool, error) {
	if b.Hidden == nil {
		return false, capability.ErrInvalidRequest.Saying("hidden is missing.")
	}
	return *b.Hidden, nil
}

func (l *Leaderboard) putVisibility(c *capability.Call, body hiddenBody) (Visibility, error) {
	hidden, err := body.value()
	if err != nil {
		return Visibility{}, err
	}
	return l.SetHidden(c.Context(), c.Param("board"), c.Caller.UserID, Player, hidden)
}

func (l *Leaderboard) putHidden(c *capability.Call, body hiddenBody) (Visibility, error) {
	hidden, err := body.value()
	if err != nil {
		return Visibility{}, err
	}
	return l.SetHidden(c.Context(), c.Param("board"), c.Param("userId"), Administrator, hidden)
}

// deleteEntry removes an entry from the open window, or from the one in the query.
func (l *Leaderboard) deleteEntry(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, l.Remove(c.Context(), viewOf(c), c.Param("userId"))
}
