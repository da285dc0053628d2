package vector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/jobs"
)

const (
	reembedding     = "VECTOR_REEMBED"
	reembeddingSize = 64
)

// reembedIndex is the payload of a re-embedding, and the detail of its audit event.
type reembedIndex struct {
	Index string `json:"index"`
	Model string `json:"model"`
}

// Reembed starts the durable job that embeds the texts of an index with the embedder of its
// configuration, partition by partition. Each partition keeps its old vectors until all the new
// ones are made, and then changes to them in one transaction; until then it refuses texts with
// vector/model_mismatch. A partition with a document without text is not changed, nor is one whose
// vectors were supplied by callers without a model. The job waits for a node that is configured
// with the model of this one, and for the end of a job that is running for the index; it replaces
// one that has not started. Refuses with vector/index_not_found and vector/embedder_not_configured.
func (v *Vector) Reembed(ctx context.Context, index string) error {
	x, ok := v.indexes[index]
	switch {
	case !ok:
		return ErrIndexNotFound
	case x.Embedder == nil:
		return ErrEmbedderNotConfigured
	}
	work := reembedIndex{index, x.model()}
	return v.inTx(ctx, func(ctx context.Context) error {
		if err := v.jobs.SetAlarm(ctx, reembedding, index, v.now(), work); err != nil {
			return err
		}
		return v.audit.Record(ctx, audit.Event{Action: "vector/reembedding_started",
			Subject: audit.Target{Type: "vector_index", ID: index}, Detail: work})
	})
}

func (v *Vector) runReembedding(ctx context.Context, job jobs.Job) error {
	var work reembedIndex
	if err := json.Unmarshal(job.Payload, &work); err != nil {
		return jobs.Permanent(err)
	}
	x, ok := v.indexes[work.Index]
	switch {
	case !ok || x.Embedder == nil:
		return jobs.Cancel(ErrIndexNotFound)
	case x.model() != work.Model: // during a rollout: another node must do it
		return fmt.Errorf("vector: this node embeds the index %s with %s, and not with %s", x.Name, x.model(), work.Model)
	}
	// Two models at once would undo each other's work: the job that was requested first finishes,
	// and is not repeated.
	running, err := v.jobs.List(ctx, jobs.Filter{Binding: reembedding, State: jobs.StateRunning}, "", 0)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(running, func(s jobs.Status) bool { return s.Key == job.Key && s.ID != job.ID }) {
		return fmt.Errorf("vector: another job embeds the index %s", x.Name)
	}
	for after := ""; ; {
		space, p, ok, err := v.store.nextOutdated(ctx, x.Name, x.model(), after)
		if err != nil || !ok {
			return err
		}
		if err := v.reembed(ctx, x, space, p); err != nil {
			return err
		}
		after = p.id
	}
}

// reembed makes the new vectors of a partition, then replaces the old ones by them.
func (v *Vector) reembed(ctx context.Context, x *Index, space Space, p partition) error {
	for {
		rows, err := v.store.toEmbed(ctx, p.id, x.model(), reembeddingSize)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			swapped := false
			err := v.inTx(ctx, func(ctx context.Context) (err error) {
				swapped, err = v.store.swap(ctx, space, p.id, x.model())
				return err
			})
			if err != nil || swapped {
				return err
			}
			continue // a document was added in the meantime
		}
		texts := make([]string, len(rows))
		for i, row := range rows {
			if texts[i] = row.Text; strings.TrimSpace(row.Text) == "" {
				v.log.Warn("vector: a partition cannot be embedded anew: a document has no text", "index", x.Name, "partition", p.id)
				return nil
			}
		}
		vectors, _, err := v.embed(ctx, x, texts)
		if err != nil {
			return err
		}
		if err := v.inTx(ctx, func(ctx context.Context) error {
			// The lock excludes deletions and erasures between reading the document and storing its
			// vector.
			if now, ok, err := v.store.locked(ctx, space); err != nil || !ok || now.id != p.id {
				return err
			}
			for i, row := range rows {
				if err := v.store.embedded(ctx, p.id, row, x.model(), vectors[i]); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
}

// outdated counts, by index, the documents embedded by a model other than the configured one.
func (v *Vector) outdated(ctx context.Context) (map[string]int64, error) {
	counts := make(map[string]int64)
	for _, x := range v.cfg.Indexes[:min(len(v.cfg.Indexes), maxShownIndexes)] {
		if x.Embedder == nil {
			continue
		}
		n, err := v.store.countOutdated(ctx, x.Name, x.model())
		if err != nil {
			return nil, err
		}
		if n > 0 {
			counts[x.Name] = n
		}
	}
	return counts, nil
}
