package vector_test

import (
	"context"
	"errors"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/vector"
)

// service is an embedder that can be made to fail, or to become another model.
type service struct {
	model string
	fail  error
}

func (s *service) Embed(_ context.Context, texts []string) ([][]float32, int64, error) {
	vectors := make([][]float32, len(texts))
	for i := range vectors {
		vectors[i] = []float32{1, 0}
	}
	return vectors, 0, s.fail
}

func (s *service) Model() string { return s.model }

func (s *service) Dimensions() int { return 2 }

// TestEmbedderRefuses produces the refusals of embedding.
func TestEmbedderRefuses(t *testing.T) {
	s := &service{model: "one"}
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes", Dimensions: 2, Embedder: s}}}))
	ada := k.User("ada")
	ada.Post("/vector/notes/documents", object{"id": "a", "text": "x"}).Want(200, "")
	s.model = "two"
	ada.Post("/vector/notes/query", object{"text": "x"}).Want(409, "vector/model_mismatch")
	s.fail = errors.New("down")
	ada.Post("/vector/notes/query", object{"text": "y"}).Want(502, "vector/embedding_failed")
	ada.Post("/vector/notes/documents", object{"id": "b", "text": "y"}).Want(502, "vector/embedding_failed")
}
