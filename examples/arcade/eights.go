package main

import (
	"slices"
	"strings"

	"github.com/kitbackend/kit/multiplayer"
)

// eights is a card table for two to four players: follow the suit or the rank of the card on top,
// or play an eight and name the suit. A player without cards wins; when the deck is empty and no
// player can or wants to play, the hand with the fewest points wins. Players may sit down and leave
// during the game.
const (
	eights   = "eights"
	handSize = 5
	ranks    = "A23456789TJQK"
	suits    = "CDHS"
)

type eightsRules struct{}

// A card is its rank and its suit, such as "TS".
type eightsState struct {
	// Start is the deck as it was shuffled, for all players to verify at the end.
	Start []string `json:"start"`
	// Deck is dealt from its end; the end of Pile is on top.
	Deck []string `json:"deck"`
	Pile []string `json:"pile"`
	// Suit is the suit to follow.
	Suit  string              `json:"suit"`
	Hands map[string][]string `json:"hands"`
	// Seats are the players in the order of turns, as of the last change.
	Seats []string `json:"seats"`
	Turn  string   `json:"turn"`
	// Drew reports whether the player whose turn it is has drawn.
	Drew bool `json:"drew"`
	// Passes is the number of consecutive passes; when all pass on an empty deck, the game is over.
	Passes int         `json:"passes"`
	Last   *eightsMove `json:"last,omitempty"`
}

// eightsMove is the previous move, as all players saw it.
type eightsMove struct {
	Player string `json:"player"`
	Did    string `json:"did"` // played, drew, passed, joined or left
	Card   string `json:"card,omitempty"`
}

// eightsAction is the action of a client: {"play": "8S", "suit": "H"}, {"draw": true} or {"pass":
// true}.
type eightsAction struct {
	Play string `json:"play"`
	Suit string `json:"suit"`
	Draw bool   `json:"draw"`
	Pass bool   `json:"pass"`
}

// eightsView is the table as a player sees it: of the other hands and the deck, only the number of
// cards until the game is over.
type eightsView struct {
	Hand   []string            `json:"hand"`
	Counts map[string]int      `json:"counts"`
	Deck   int                 `json:"deck"`
	Top    string              `json:"top"`
	Pile   int                 `json:"pile"`
	Suit   string              `json:"suit"`
	Turn   string              `json:"turn"`
	Drew   bool                `json:"drew"`
	Last   *eightsMove         `json:"last,omitempty"`
	Start  []string            `json:"start,omitempty"`
	Hands  map[string][]string `json:"hands,omitempty"`
}

type eightsContext = multiplayer.Context[eightsRules]

func eightsModel() multiplayer.Model {
	return multiplayer.Define(multiplayer.Definition[eightsRules, eightsState]{
		Kind: eights, MinPlayers: 2, MaxPlayers: 4,
		Init: eightsInit, Apply: eightsApply, Resolve: eightsResolve, Redact: eightsRedact,
		OnJoin: eightsJoin, OnLeave: eightsLeave,
		IsComplete: func(_ eightsContext, s eightsState) bool {
			if len(s.Seats) < 2 || len(s.Deck) == 0 && s.Passes >= len(s.Seats) {
				return true
			}
			return slices.ContainsFunc(s.Seats, func(player string) bool { return len(s.Hands[player]) == 0 })
		},
	})
}

// newDeck returns a deck in the order that the verifier of the page shuffles, too.
func newDeck() (deck []string) {
	for _, suit := range suits {
		for _, rank := range ranks {
			deck = append(deck, string(rank)+string(suit))
		}
	}
	return deck
}

func eightsInit(c eightsContext) (eightsState, []multiplayer.Effect, error) {
	deck := newDeck()
	c.Random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	s := eightsState{Start: slices.Clone(deck), Deck: deck, Hands: map[string][]string{}, Seats: slices.Clone(c.Players), Turn: c.Players[0]}
	for _, player := range c.Players {
		s.Hands[player] = s.deal(handSize)
	}
	s.Pile = s.deal(1)
	s.Suit = s.Pile[0][1:]
	return s, nil, nil
}

// deal takes n cards off the deck, or as many as there are.
func (s *eightsState) deal(n int) []string {
	n = min(n, len(s.Deck))
	cards := slices.Clone(s.Deck[len(s.Deck)-n:])
	slices.Reverse(cards)
	s.Deck = s.Deck[:len(s.Deck)-n]
	return cards
}

func (s *eightsState) top() string { return s.Pile[len(s.Pile)-1] }

// fits reports whether a card may be played on the pile.
func (s *eightsState) fits(card string) bool {
	return card[0] == '8' || card[0] == s.top()[0] || card[1:] == s.Suit
}

func (s *eightsState) pass(did eightsMove) {
	i := slices.Index(s.Seats, s.Turn)
	s.Turn = s.Seats[(i+1)%len(s.Seats)]
	s.Drew, s.Last = false, &did
}

func eightsApply(_ eightsContext, s eightsState, m multiplayer.Move) (eightsState, []multiplayer.Effect, error) {
	var a eightsAction
	if err := m.Decode(&a); err != nil {
		return s, nil, err
	}
	if m.UserID != s.Turn {
		return s, nil, multiplayer.ErrInvalidTransition.Saying("It is not your turn.")
	}
	var err error
	switch {
	case a.Play != "":
		err = s.play(m.UserID, a)
	case a.Draw:
		err = s.draw(m.UserID)
	case a.Pass && !s.Drew && len(s.Deck) > 0:
		err = multiplayer.Illegal("Draw a card before you pass.")
	case a.Pass:
		s.Passes++
		s.pass(eightsMove{Player: m.UserID, Did: "passed"})
	default:
		err = multiplayer.Illegal("Play a card, draw or pass.")
	}
	return s, nil, err
}

func (s *eightsState) play(player string, a eightsAction) error {
	hand := s.Hands[player]
	i := slices.Index(hand, a.Play)
	switch {
	case i < 0:
		return multiplayer.Illegal("You do not hold this card.")
	case !s.fits(a.Play):
		return multiplayer.Illegal("Follow the suit or the rank, or play an eight.")
	case a.Play[0] == '8' && (len(a.Suit) != 1 || !strings.Contains(suits, a.Suit)):
		return multiplayer.Illegal("Name a suit for the eight: C, D, H or S.")
	}
	s.Hands[player] = slices.Delete(hand, i, i+1)
	s.Pile = append(s.Pile, a.Play)
	if s.Suit = a.Play[1:]; a.Play[0] == '8' {
		s.Suit = a.Suit
	}
	s.Passes = 0
	s.pass(eightsMove{Player: player, Did: "played", Card: a.Play})
	return nil
}

func (s *eightsState) draw(player string) error {
	switch {
	case s.Drew:
		return multiplayer.Illegal("You have drawn. Play a card or pass.")
	case len(s.Deck) == 0:
		return multiplayer.Illegal("The deck is out. Play a card or pass.")
	}
	s.Hands[player] = append(s.Hands[player], s.deal(1)...)
	s.Drew, s.Passes, s.Last = true, 0, &eightsMove{Player: player, Did: "drew"}
	return nil
}

func eightsJoin(_ eightsContext, s eightsState, player string) (eightsState, []multiplayer.Effect, error) {
	if len(s.Deck) < handSize {
		return s, nil, multiplayer.ErrInvalidTransition.Saying("This round is about to end. Join the next one.")
	}
	s.Seats = append(s.Seats, player)
	s.Hands[player] = s.deal(handSize)
	s.Last = &eightsMove{Player: player, Did: "joined"}
	return s, nil, nil
}

// eightsLeave puts the cards of a leaving player under the deck.
func eightsLeave(_ eightsContext, s eightsState, player string) (eightsState, []multiplayer.Effect, error) {
	if s.Turn == player {
		s.pass(eightsMove{})
	}
	s.Deck = append(slices.Clone(s.Hands[player]), s.Deck...)
	delete(s.Hands, player)
	s.Seats = slices.DeleteFunc(s.Seats, func(other string) bool { return other == player })
	s.Last, s.Passes = &eightsMove{Player: player, Did: "left"}, 0
	return s, nil, nil
}

// eightsResolve ranks by the points left in the hands. A player who is left alone has defeated no
// opponent.
func eightsResolve(c eightsContext, s eightsState) multiplayer.Outcome {
	points := make(map[string]int)
	for _, player := range c.Players {
		for _, card := range s.Hands[player] {
			points[player] += worth(card)
		}
	}
	out := multiplayer.Outcome{Detail: map[string]any{"points": points}}
	if len(c.Players) < 2 {
		return out
	}
	out.Ranks = make(map[string]int)
	for _, player := range c.Players {
		place := 1
		for _, other := range c.Players {
			if points[other] < points[player] {
				place++
			}
		}
		out.Ranks[player] = place
	}
	return out
}

func worth(card string) int {
	switch card[0] {
	case '8':
		return 50
	case 'T', 'J', 'Q', 'K':
		return 10
	default:
		return strings.IndexByte(ranks, card[0]) + 1
	}
}

func eightsRedact(_ eightsContext, s eightsState, viewer string, revealed bool) any {
	v := eightsView{
		Hand: s.Hands[viewer], Counts: make(map[string]int), Deck: len(s.Deck), Top: s.top(), Pile: len(s.Pile),
		Suit: s.Suit, Turn: s.Turn, Drew: s.Drew, Last: s.Last,
	}
	if v.Hand == nil {
		v.Hand = []string{}
	}
	for player, hand := range s.Hands { // into a map: the order makes no difference
		v.Counts[player] = len(hand)
	}
	if revealed {
		v.Start, v.Hands = s.Start, s.Hands
	}
	return v
}
