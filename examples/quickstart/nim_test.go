package main

import (
	"math/rand/v2"
	"testing"

	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/multiplayer/modeltest"
)

func TestNim(t *testing.T) {
	modeltest.Run(t, modeltest.Suite{
		Model: nim(), Game: duel,
		Move: func(_ multiplayer.View, r *rand.Rand) any { return take{r.IntN(5)} },
	})
}
