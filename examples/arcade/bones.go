package main

import (
	"slices"

	"github.com/kitbackend/kit/multiplayer"
)

// bones is a dice duel. Each player fills a board of three columns of three. Equal dice in a column
// multiply: two fours are worth sixteen. A die placed in a column removes equal dice from the same
// column of the other player. The player with the higher board when one is full takes both stakes.
const (
	bones   = "bones"
	columns = 3
	height  = 3
)

type bonesRules struct {
	Currency string `json:"currency"`
	Stake    int64  `json:"stake"`
}

// board is the columns of a player, each from the bottom up.
type board [columns][]int

type bonesState struct {
	// Boards, Turn and First are in the order of the players.
	Boards [2]board `json:"boards"`
	First  int      `json:"first"`
	Turn   int      `json:"turn"`
	// Rolls are all dice so far; the last one is to be placed.
	Rolls []int `json:"rolls"`
	// Last is the previous move, for the page to show.
	Last *bonesMove `json:"last,omitempty"`
	// Resigned is the player who resigned.
	Resigned *int `json:"resigned,omitempty"`
}

type bonesMove struct {
	Player  int `json:"player"`
	Column  int `json:"column"`
	Die     int `json:"die"`
	Knocked int `json:"knocked"` // dice of the other player
}

// bonesAction is the action of a client: {"place": 0} to {"place": 2}, or {"resign": true}.
type bonesAction struct {
	Place  *int `json:"place"`
	Resign bool `json:"resign"`
}

// bonesView is the state with the sums. Nothing is hidden but the future dice, which are in the
// seed.
type bonesView struct {
	bonesState
	Sums   [2][columns]int `json:"sums"`
	Scores [2]int          `json:"scores"`
	Stake  int64           `json:"stake"`
}

func bonesModel() multiplayer.Model {
	return multiplayer.Define(multiplayer.Definition[bonesRules, bonesState]{
		Kind: bones, MinPlayers: 2, MaxPlayers: 2,
		Init: bonesInit, Apply: bonesApply, Resolve: bonesResolve,
		IsComplete: func(_ multiplayer.Context[bonesRules], s bonesState) bool {
			return s.Resigned != nil || s.Boards[0].full() || s.Boards[1].full()
		},
		Redact: func(c multiplayer.Context[bonesRules], s bonesState, _ string, _ bool) any {
			v := bonesView{bonesState: s, Stake: c.Config.Stake}
			for i, b := range s.Boards {
				v.Scores[i], v.Sums[i] = b.score()
			}
			return v
		},
	})
}

// bonesInit holds both stakes and rolls the first die.
func bonesInit(c multiplayer.Context[bonesRules]) (bonesState, []multiplayer.Effect, error) {
	first := int(c.Random.Int(0, 1))
	s := bonesState{First: first, Turn: first, Rolls: []int{roll(c)}}
	for i := range s.Boards {
		for column := range s.Boards[i] {
			s.Boards[i][column] = []int{}
		}
	}
	var stakes []multiplayer.Effect
	for _, player := range c.Players {
		stakes = append(stakes, multiplayer.Hold(player, c.Config.Currency, c.Config.Stake, c.Ref("stake/"+player)))
	}
	return s, stakes, nil
}

func roll(c multiplayer.Context[bonesRules]) int { return int(c.Random.Int(1, 6)) }

func bonesApply(c multiplayer.Context[bonesRules], s bonesState, m multiplayer.Move) (bonesState, []multiplayer.Effect, error) {
	var a bonesAction
	if err := m.Decode(&a); err != nil {
		return s, nil, err
	}
	me := slices.Index(c.Players, m.UserID)
	switch {
	case a.Resign:
		s.Resigned = &me
		return s, nil, nil
	case me != s.Turn:
		return s, nil, multiplayer.ErrInvalidTransition.Saying("It is not your turn.")
	case a.Place == nil || *a.Place < 0 || *a.Place >= columns:
		return s, nil, multiplayer.Illegal("Choose column 0, 1 or 2.")
	case len(s.Boards[me][*a.Place]) == height:
		return s, nil, multiplayer.Illegal("That column is full.")
	}
	die, column := s.Rolls[len(s.Rolls)-1], *a.Place
	s.Boards[me][column] = append(s.Boards[me][column], die)
	theirs := &s.Boards[1-me][column]
	before := len(*theirs)
	*theirs = slices.DeleteFunc(*theirs, func(other int) bool { return other == die })
	s.Last = &bonesMove{Player: me, Column: column, Die: die, Knocked: before - len(*theirs)}
	if !s.Boards[me].full() {
		s.Turn = 1 - me
		s.Rolls = append(s.Rolls, roll(c))
	}
	return s, nil, nil
}

// bonesResolve gives both stakes to the winner, or returns them in a draw.
func bonesResolve(c multiplayer.Context[bonesRules], s bonesState) multiplayer.Outcome {
	scores := [2]int{}
	for i, b := range s.Boards {
		scores[i], _ = b.score()
	}
	winner := -1
	switch {
	case s.Resigned != nil:
		winner = 1 - *s.Resigned
	case scores[0] != scores[1]:
		winner = slices.Index(scores[:], max(scores[0], scores[1]))
	}
	out := multiplayer.Outcome{Ranks: map[string]int{}, Detail: map[string]any{"scores": scores, "pot": 2 * c.Config.Stake}}
	for i, player := range c.Players {
		stake := c.Ref("stake/" + player)
		switch {
		case winner < 0:
			out.Ranks[player] = 1
			out.Effects = append(out.Effects, multiplayer.Release(stake))
		case i == winner:
			out.Ranks[player] = 1
			out.Effects = append(out.Effects, multiplayer.Release(stake),
				multiplayer.Credit(player, c.Config.Currency, c.Config.Stake, c.Ref("prize")))
		default:
			out.Ranks[player] = 2
			out.Effects = append(out.Effects, multiplayer.Capture(stake))
		}
	}
	return out
}

func (b board) full() bool {
	for _, column := range b {
		if len(column) < height {
			return false
		}
	}
	return true
}

// score adds up the columns: n equal dice are worth n times their sum.
func (b board) score() (total int, sums [columns]int) {
	for i, column := range b {
		var count [7]int
		for _, die := range column {
			count[die]++
		}
		for die, n := range count {
			sums[i] += die * n * n
		}
		total += sums[i]
	}
	return total, sums
}
