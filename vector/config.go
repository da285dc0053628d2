package vector

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/kitbackend/kit/capability"
)

// Bounds of an index.
const (
	MaxDimensions = 4096
	MaxFilterable = 16

	defaultMaxDocuments       = 10_000
	defaultMaxSharedDocuments = 100_000
	defaultMemoryBytes        = 1 << 30
)

// Config configures vector.
type Config struct {
	// Indexes are the indexes; at least one is required, with unique names.
	Indexes []Index
	// MemoryBytes bounds the vectors that a node keeps in memory, by default 1 GiB; the least
	// recently used partition is dropped first. A full partition of every index must fit.
	MemoryBytes int64
	// Engine searches the vectors in the database: pgvector.New on PostgreSQL with that extension.
	// By default, on every database, nodes search them in memory.
	Engine Engine
	// Database is the name of the binding of the documents, by default "DB".
	Database string
	// BasePath is the mount prefix, by default "/vector".
	BasePath string
}

// Metric is the similarity of two vectors. Higher scores are nearer.
type Metric string

// The metrics. The zero value is cosine.
const (
	MetricCosine    Metric = "cosine"    // the score is the cosine of the angle, -1 to 1
	MetricDot       Metric = "dot"       // the score is the inner product
	MetricEuclidean Metric = "euclidean" // the score is 1/(1+distance)
)

// Scope is who has access to an index.
type Scope string

// The scopes. The zero value is owner.
const (
	ScopeOwner  Scope = "owner"  // each user has a partition
	ScopeShared Scope = "shared" // users read; only Go code writes, exports and erases
)

// Index is a collection of documents of the same kind.
type Index struct {
	// Name is the name in paths: 1 to 63 lower case letters, digits, _ and -, beginning with a
	// letter or digit.
	Name string
	// Dimensions is the length of every vector, 1 to 4,096; by default that of the embedder, or 384
	// without one.
	Dimensions int
	// Metric is cosine by default.
	Metric Metric
	// Scope is owner by default.
	Scope Scope
	// Filterable lists the metadata keys that queries can filter by, at most 16.
	Filterable []string
	// Embedder makes vectors from text; by default [Hashing], which compares letters and words but
	// not meaning.
	Embedder Embedder
	// VectorsOnly disables embedding of text: callers supply the vectors.
	VectorsOnly bool
	// MaxDocuments bounds a partition: by default 10,000 for each owner and
	// 100,000 for a shared index.
	MaxDocuments int64

	maxComponent float32 // the bound of the engine
}

var (
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	keyForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]{0,63}$`)
)

func (c Config) withDefaults() Config {
	c.MemoryBytes = cmp.Or(c.MemoryBytes, defaultMemoryBytes)
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/vector")
	c.Indexes = slices.Clone(c.Indexes)
	for i := range c.Indexes {
		x := &c.Indexes[i]
		x.Metric = cmp.Or(x.Metric, MetricCosine)
		x.Scope = cmp.Or(x.Scope, ScopeOwner)
		if x.Embedder != nil {
			x.Dimensions = cmp.Or(x.Dimensions, x.Embedder.Dimensions())
		}
		x.Dimensions = cmp.Or(x.Dimensions, 384)
		if x.Embedder == nil && !x.VectorsOnly && x.Dimensions > 0 {
			x.Embedder = Hashing(x.Dimensions)
		}
		most := int64(defaultMaxDocuments)
		if x.Scope == ScopeShared {
			most = defaultMaxSharedDocuments
		}
		x.MaxDocuments = cmp.Or(x.MaxDocuments, most)
		if c.Engine != nil {
			x.maxComponent = c.Engine.MaxComponent(*x)
		}
	}
	return c
}

func (c Config) validate(faults *capability.Faults) {
	if len(c.Indexes) == 0 {
		faults.Add("indexes", nil, "is empty", "declare at least one index")
	}
	if c.MemoryBytes < 0 {
		faults.Add("memoryBytes", c.MemoryBytes, "is negative", "give a number of bytes, or nothing for 1 GiB")
	}
	seen := make(map[string]bool)
	for i, x := range c.Indexes {
		at := func(field string) string { return fmt.Sprintf("indexes[%d].%s", i, field) }
		if !nameForm.MatchString(x.Name) {
			faults.Add(at("name"), x.Name, "is not a path segment", "use 1 to 63 lower case letters, digits, _ and -")
		} else if seen[x.Name] {
			faults.Add(at("name"), x.Name, "is declared twice", "declare each index once")
		}
		seen[x.Name] = true
		x.validate(faults, at, c.MemoryBytes)
		if c.Engine != nil {
			if err := c.Engine.Check(x); err != nil {
				faults.Add(at("dimensions"), x.Dimensions, err.Error(), "leave the engine out, or change the index")
			}
		}
	}
}

func (x Index) validate(faults *capability.Faults, at func(string) string, memory int64) {
	if x.Dimensions < 1 || x.Dimensions > MaxDimensions {
		faults.Add(at("dimensions"), x.Dimensions, "is out of range", "use 1 to 4096")
	}
	if !slices.Contains([]Metric{MetricCosine, MetricDot, MetricEuclidean}, x.Metric) {
		faults.Add(at("metric"), x.Metric, "is not a metric", "use cosine, dot or euclidean")
	}
	if x.Scope != ScopeOwner && x.Scope != ScopeShared {
		faults.Add(at("scope"), x.Scope, "is not a scope", "use owner or shared")
	}
	if len(x.Filterable) > MaxFilterable {
		faults.Add(at("filterable"), len(x.Filterable), "is too long", "filter by at most 16 keys")
	}
	for j, key := range x.Filterable {
		if !keyForm.MatchString(key) || isGroup(key) || slices.Contains(x.Filterable[:j], key) {
			faults.Add(at("filterable"), key, "is not a key, or is listed twice",
				"use a letter or _, then letters, digits, _ and ., at most 64 in all, but not and, or, not")
		}
	}
	switch {
	case x.Embedder == nil:
	case x.VectorsOnly:
		faults.Add(at("vectorsOnly"), true, "is set along with an embedder", "leave one of the two out")
	case x.Embedder.Dimensions() != x.Dimensions:
		faults.Add(at("dimensions"), x.Dimensions, "is not what the embedder makes", "use the embedder's dimensions")
	case x.Embedder.Model() == "" || len(x.Embedder.Model()) > maxModel:
		faults.Add(at("embedder"), x.Embedder.Model(), "has no name for its model", "name it in 1 to 128 bytes")
	}
	if x.MaxDocuments < 1 || x.MaxDocuments > 10_000_000 {
		faults.Add(at("maxDocuments"), x.MaxDocuments, "is out of range", "use 1 to 10000000")
	} else if memory > 0 && x.MaxDocuments*int64(4*x.Dimensions) > memory {
		faults.Add(at("maxDocuments"), x.MaxDocuments, "does not fit into memoryBytes", "lower it, or raise memoryBytes")
	}
}

// shown is the form of an index in the manifest.
type shown struct {
	Name         string   `json:"name"`
	Dimensions   int      `json:"dimensions"`
	Metric       Metric   `json:"metric"`
	Scope        Scope    `json:"scope"`
	Filterable   []string `json:"filterable"`
	Model        string   `json:"model"`
	MaxDocuments int64    `json:"maxDocuments"`
}

func (c Config) keys() []capability.ConfigKey {
	indexes := make([]shown, len(c.Indexes))
	for i, x := range c.Indexes {
		indexes[i] = shown{x.Name, x.Dimensions, x.Metric, x.Scope, append([]string{}, x.Filterable...), x.model(), x.MaxDocuments}
	}
	return []capability.ConfigKey{
		{Key: "indexes", Value: indexes, Summary: "The indexes; a model is who embeds text, empty where callers bring vectors."},
		{Key: "engine", Value: c.engine(), Summary: "What searches the vectors: the memory of each node, or the database."},
		{Key: "memoryBytes", Value: c.MemoryBytes, Summary: "How much of the vectors a node keeps in memory."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the documents."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}

func (x Index) model() string {
	if x.Embedder == nil {
		return ""
	}
	return x.Embedder.Model()
}

func (c Config) engine() string {
	if c.Engine == nil {
		return "memory"
	}
	return c.Engine.Name()
}

// Choices lists the values, for API documents.
func (Metric) Choices() []string {
	return []string{string(MetricCosine), string(MetricDot), string(MetricEuclidean)}
}

// Choices lists the values, for API documents.
func (Scope) Choices() []string { return []string{string(ScopeOwner), string(ScopeShared)} }
