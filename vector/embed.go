package vector

import (
	"context"
	"hash/fnv"
	"math"
	"unicode/utf8"
)

// Embedder makes vectors from texts. It is safe for concurrent use.
type Embedder interface {
	// Embed returns a vector for each text, in order, and the number of tokens, or 0 if it does not
	// count them.
	Embed(ctx context.Context, texts []string) (vectors [][]float32, tokens int64, err error)
	// Model returns the name of the model, 1 to 128 bytes. Vectors of different models are never
	// compared.
	Model() string
	// Dimensions returns the length of every vector.
	Dimensions() int
}

// Hashing returns the embedder hashing-v1, which needs no service and no model: it counts words and
// their letter sequences. Texts are near each other if they share words, or parts of words such as
// stems; the comparison is lexical, not semantic.
func Hashing(dimensions int) Embedder { return hashing(dimensions) }

type hashing int

func (h hashing) Model() string   { return "hashing-v1" }
func (h hashing) Dimensions() int { return int(h) }

func (h hashing) Embed(_ context.Context, texts []string) ([][]float32, int64, error) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = h.vector(text)
	}
	return vectors, 0, nil
}

// vector adds up the features of a text: each is hashed to a dimension and a sign, and weighted by
// the square root of its frequency.
func (h hashing) vector(text string) []float32 {
	counts := make(map[uint64]float64)
	var order []uint64 // a fixed order of the additions, which are rounded
	count := func(feature string, by float64) {
		hash := hashOf(feature)
		if _, ok := counts[hash]; !ok {
			order = append(order, hash)
		}
		counts[hash] += by
	}
	for _, word := range wordsOf(text) {
		count(word, 1)
		padded := "^" + word + "$"
		for size := 3; size <= 5; size++ {
			for _, gram := range grams(padded, size) {
				count(gram, 0.25)
			}
		}
	}
	sums := make([]float64, h)
	for _, hash := range order {
		weight := math.Sqrt(counts[hash])
		if hash>>63 == 1 {
			weight = -weight
		}
		sums[hash%uint64(h)] += weight
	}
	vector := make([]float32, h)
	empty := true
	for i, v := range sums {
		vector[i] = float32(v)
		empty = empty && vector[i] == 0
	}
	if empty {
		vector[0] = 1 // a text without words gets an arbitrary direction
	}
	return vector
}

func hashOf(feature string) uint64 {
	f := fnv.New64a()
	_, _ = f.Write([]byte(feature))
	x := f.Sum64()
	x ^= x >> 32 // FNV-1a mixes the high bits of short texts poorly
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// grams lists the substrings of size characters.
func grams(word string, size int) []string {
	var starts []int
	for at := range word {
		starts = append(starts, at)
	}
	starts = append(starts, len(word))
	var list []string
	for i := 0; i+size < len(starts) && utf8.ValidString(word); i++ {
		list = append(list, word[starts[i]:starts[i+size]])
	}
	return list
}
