package support

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
)

// Verdict is the classification of a thread.
type Verdict struct {
	Category   string
	Priority   Priority
	Sentiment  Sentiment
	Spam       bool
	Confidence float64
	// Summary is at most 200 bytes.
	Summary string
}

var (
	sentiments = []string{string(SentimentAngry), string(SentimentFrustrated), string(SentimentNeutral), string(SentimentPositive)}
	priorities = []string{string(PriorityUrgent), string(PriorityNormal), string(PriorityLow)}
)

const (
	maxSummary = 200
	// maxJudged bounds the text that is classified, in bytes.
	maxJudged = 8000
	// judgedMessages is how many of the newest messages are classified.
	judgedMessages = 3
)

// Reclassify classifies a thread again, or sets its category if one is given: a category that a
// person has set stays until the next call. Refuses with support/not_found,
// support/invalid_category and, if the model fails and [AI].NoFallback is set,
// support/classification_failed.
func (s *Support) Reclassify(ctx context.Context, threadID, category string) (Thread, error) {
	if category == "" {
		thread, err := s.find(ctx, threadID, s.store.thread)
		if err != nil {
			return Thread{}, err
		}
		return s.classify(ctx, thread, true)
	}
	if !s.known(category) {
		return Thread{}, ErrInvalidCategory
	}
	detail := map[string]string{"category": category}
	return s.change(ctx, threadID, "support/thread_reclassified", detail, func(ctx context.Context, _ Thread) (bool, error) {
		return true, s.store.setCategory(ctx, threadID, category, s.db.Now(ctx))
	})
}

func (s *Support) runClassify(ctx context.Context, job jobs.Job) error {
	var threadID string
	if err := json.Unmarshal(job.Payload, &threadID); err != nil {
		return jobs.Permanent(err)
	}
	thread, err := s.find(ctx, threadID, s.store.thread)
	if errors.Is(err, ErrNotFound) {
		return nil // erased meanwhile
	}
	if err == nil {
		_, err = s.classify(ctx, thread, false)
	}
	return err
}

// classify classifies a thread and writes the verdict. asked marks the request of a person, which
// overrides a category that a person has set and is recorded by audit; without it, such a category
// stays, and its thread is not marked as spam.
func (s *Support) classify(ctx context.Context, t Thread, asked bool) (after Thread, err error) {
	messages, err := s.store.heads(ctx, t.ID, judgedMessages)
	if err != nil {
		return t, err
	}
	text := judged(messages)
	seen := s.evidence(t, messages, text)
	verdict, by, err := s.judge(ctx, t.Subject, text, seen)
	if err != nil {
		return t, err
	}
	familiar, err := s.store.familiar(ctx, t.fromKey, t.ID)
	if err != nil {
		return t, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		now := s.db.Now(ctx)
		written, err := s.store.setVerdict(ctx, t.ID, verdict, by, t.MessageCount, asked, now)
		if err != nil {
			return err
		}
		current, err := s.find(ctx, t.ID, s.store.lockThread)
		if err != nil || !written {
			after = current
			return err
		}
		if verdict.Spam && current.By != ClassifierStaff && seen.supportsSpam() && !familiar && current.LastOutboundAt == nil {
			current.Flags.Spam = true
			if err := s.store.setFlags(ctx, t.ID, current.Flags); err != nil {
				return err
			}
			if !s.cfg.Guard.KeepSpam && current.State == StateOpen {
				if err := s.store.setState(ctx, t.ID, StateArchived, now.UnixMilli()); err != nil {
					return err
				}
			}
		}
		if asked {
			if err := s.peers.Audit.Record(ctx, audit.Event{
				Action: "support/thread_reclassified", Subject: audit.Target{Type: "support_thread", ID: t.ID},
				Detail: map[string]string{"category": verdict.Category, "classifiedBy": string(by)},
			}); err != nil {
				return err
			}
		}
		after, err = s.find(ctx, t.ID, s.store.thread)
		return err
	})
	return after, err
}

// judged returns the text of the newest messages, newest first, without invisible characters.
func judged(messages []Message) string {
	var texts []string
	for _, m := range messages {
		texts = append(texts, m.StrippedText)
	}
	text := strings.Map(func(r rune) rune {
		switch r {
		case 0x200b, 0x200c, 0x200d, 0x2060, 0xfeff, 0xad:
			return -1
		}
		return r
	}, strings.Join(texts, "\n\n"))
	return clip(text, maxJudged)
}

// judge returns the verdict of the model, or of the rules if there is no model or it fails. The
// verdict of a model is bounded by the rules, because the text of a mail may manipulate the model.
func (s *Support) judge(ctx context.Context, subject, text string, seen evidence) (Verdict, Classifier, error) {
	offline := seen.verdict(subject, text)
	if s.model == nil {
		return offline, ClassifierFallback, nil
	}
	verdict, err := s.model.ask(ctx, subject, text)
	if err != nil {
		s.host.Log.Warn("support: the model did not classify", "error", err)
		if s.cfg.AI.NoFallback {
			return Verdict{}, ClassifierNone, ErrClassificationFailed.Because(err)
		}
		return offline, ClassifierFallback, nil
	}
	return seen.bounded(verdict, offline), ClassifierModel, nil
}

// bounded limits a model's verdict by the rules: a thread about privacy, abuse or account access
// has at least normal priority, and a thread is spam only if the rules support it.
func (e evidence) bounded(v, offline Verdict) Verdict {
	v.Spam = v.Spam || v.Category == CategorySpam
	if v.Spam && !e.supportsSpam() {
		v.Spam = false
		if v.Category == CategorySpam {
			v.Category = offline.Category
		}
	}
	if v.Priority == PriorityLow && e.grave() {
		v.Priority = PriorityNormal
	}
	v.Summary = line(v.Summary, maxSummary)
	return v
}

// check returns an error for a verdict outside of the closed lists.
func (s *model) check(v Verdict) error {
	switch {
	case !s.keys[v.Category], !contains(priorities, string(v.Priority)), !contains(sentiments, string(v.Sentiment)):
		return errVerdict
	case !(v.Confidence >= 0 && v.Confidence <= 1):
		return errVerdict
	case len(v.Summary) > 4*maxSummary:
		return errVerdict
	}
	return capability.CheckText("summary", v.Summary, 0, 4*maxSummary)
}

func contains(list []string, one string) bool {
	for _, s := range list {
		if s == one {
			return true
		}
	}
	return false
}
