package multiplayer_test

import (
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
)

type tollRules struct {
	AtStart bool `json:"atStart"`
}

type tollState struct {
	Paid int `json:"paid"`
}

type tollContext = multiplayer.Context[tollRules]

// toll takes coins from its only player, at the start or with a move.
var toll = multiplayer.Define(multiplayer.Definition[tollRules, tollState]{
	Kind: "toll", MinPlayers: 1,
	Init: func(c tollContext) (tollState, []multiplayer.Effect, error) {
		if !c.Config.AtStart {
			return tollState{}, nil, nil
		}
		return tollState{}, []multiplayer.Effect{multiplayer.Hold(c.Players[0], "coins", 10, c.Ref("start"))}, nil
	},
	Apply: func(c tollContext, s tollState, m multiplayer.Move) (tollState, []multiplayer.Effect, error) {
		return s, []multiplayer.Effect{multiplayer.Debit(m.UserID, "coins", 10, c.Ref("move"))}, nil
	},
	IsComplete: func(tollContext, tollState) bool { return false },
	Resolve:    func(tollContext, tollState) multiplayer.Outcome { return multiplayer.Outcome{} },
	Redact:     func(_ tollContext, s tollState, _ string, _ bool) any { return s },
})

func TestPlayersWithoutCoins(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{toll}, Games: []multiplayer.Game{
			{Key: "gate", Kind: "toll", Players: 1, Rules: tollRules{AtStart: true}}, {Key: "road", Kind: "toll", Players: 1, Rules: tollRules{}}}}))
	ada := k.User("ada")
	ada.Post("/multiplayer/games/gate", "{}").Want(409, "ledger/insufficient_funds")
	var v multiplayer.View
	ada.Post("/multiplayer/games/road", "{}").Want(201, "").JSON(&v)
	ada.Post("/multiplayer/sessions/"+v.ID+"/action", "{}").Want(409, "ledger/insufficient_funds")
}
