package vector

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/strictjson"
	"github.com/kitbackend/kit/internal/wait"
	"github.com/kitbackend/kit/secrets"
)

// Credentials is the name of the secret with the URL and key of the embedding service, in its block
// "embedder": baseUrl and, if the service requires one, apiKey.
const Credentials = "vector-embedder-credentials"

const (
	maxRemoteBatch = 128
	remoteAttempts = 4
	maxRetryAfter  = 10 * time.Second
	remoteCalls    = 8 // concurrent calls
)

// RemoteConfig configures a [Remote] embedder.
type RemoteConfig struct {
	// Model is the service's name of the model; required.
	Model string
	// Dimensions is the length of the model's vectors; required.
	Dimensions int
	// Shorten sends Dimensions, for models that can make vectors of several lengths.
	Shorten bool
	// Batch is how many texts a request has, by default 64, at most 128.
	Batch int
	// Timeout bounds one request, by default 20 seconds.
	Timeout time.Duration
	// Client sends the requests, by default one of its own. Redirects are not followed.
	Client *http.Client
}

// Remote returns an embedder that calls a service with POST /v1/embeddings: Ollama, vLLM,
// text-embeddings-inference, llama.cpp and hosted ones. Its URL and key are in the secret
// [Credentials]. A request that fails for a temporary reason is sent at most four times.
func Remote(cfg RemoteConfig) Embedder {
	cfg.Batch = min(cmp.Or(max(cfg.Batch, 0), 64), maxRemoteBatch)
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), 20*time.Second)
	client := http.Client{}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &remote{cfg: cfg, client: &client, wait: wait.For, calls: make(chan struct{}, remoteCalls)}
}

type remote struct {
	cfg    RemoteConfig
	client *http.Client
	handle *secrets.Handle // set by bindRemotes, as is now
	now    func() time.Time
	wait   func(context.Context, time.Duration) error
	calls  chan struct{}
}

func (r *remote) Model() string   { return r.cfg.Model }
func (r *remote) Dimensions() int { return r.cfg.Dimensions }

// bindRemotes sets the secret and the clock of remote embedders.
func bindRemotes(cfg Config, s *secrets.Secrets, now func() time.Time) error {
	var handle *secrets.Handle
	for i := range cfg.Indexes {
		r, ok := cfg.Indexes[i].Embedder.(*remote)
		if !ok {
			continue
		}
		if s == nil {
			return capability.MissingPeer(Name, secrets.Name)
		}
		if handle == nil {
			var err error
			if handle, err = s.Declare(credentials()); err != nil {
				return err
			}
		}
		bound := *r
		bound.handle, bound.now = handle, now
		cfg.Indexes[i].Embedder = &bound
	}
	return nil
}

func credentials() secrets.Secret {
	return secrets.Secret{
		Name:   Credentials,
		Blocks: []secrets.Block{{Name: "embedder", Required: []string{"baseUrl"}, Optional: []string{"apiKey"}}},
		Check: func(blocks secrets.Blocks) error {
			if block, ok := blocks["embedder"]; ok {
				return checkAddress(block["baseUrl"].Reveal())
			}
			return nil
		},
	}
}

func checkAddress(address string) error {
	base, err := url.Parse(address)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil ||
		base.RawQuery != "" || base.Fragment != "" {
		return errors.New("baseUrl must be an http or https address without user, query and fragment")
	}
	return nil
}

// Embed sends requests for the texts, in batches.
func (r *remote) Embed(ctx context.Context, texts []string) (vectors [][]float32, tokens int64, err error) {
	select {
	case r.calls <- struct{}{}:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	defer func() { <-r.calls }()
	for len(texts) > 0 {
		n := min(len(texts), r.cfg.Batch)
		batch, used, err := r.batch(ctx, texts[:n])
		if err != nil {
			return nil, 0, err
		}
		vectors, tokens, texts = append(vectors, batch...), tokens+used, texts[n:]
	}
	return vectors, tokens, nil
}

// passing is a temporary failure.
type passing struct {
	error
	after time.Duration
}

func (r *remote) batch(ctx context.Context, texts []string) (vectors [][]float32, tokens int64, err error) {
	for attempt := range remoteAttempts {
		vectors, tokens, err = r.request(ctx, texts)
		var again passing
		if !errors.As(err, &again) || attempt == remoteAttempts-1 {
			break
		}
		pause := again.after
		if pause == 0 {
			pause = time.Duration(float64(250*time.Millisecond<<attempt) * (0.75 + rand.Float64()/2))
		}
		if err := r.wait(ctx, pause); err != nil {
			return nil, 0, err
		}
	}
	return vectors, tokens, err
}

type embeddingRequest struct {
	Model          string   `json:"model"`
	Input          []string `json:"input"`
	EncodingFormat string   `json:"encoding_format"`
	Dimensions     int      `json:"dimensions,omitempty"`
}

type embeddingResponse struct {
	Data []struct {
		Index int `json:"index"`
		// Embedding is decoded strictly: services write components that are not numbers as null.
		Embedding json.RawMessage `json:"embedding"`
	} `json:"data"`
	Usage struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

func (r *remote) request(ctx context.Context, texts []string) ([][]float32, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	data, err := r.handle.Get(ctx)
	if err != nil {
		return nil, 0, err
	}
	fields, ok := data.Block("embedder")
	if !ok {
		return nil, 0, errors.New("the secret " + Credentials + " has no block embedder")
	}
	base := fields["baseUrl"].Reveal()
	if err := checkAddress(base); err != nil {
		return nil, 0, err
	}
	body := embeddingRequest{Model: r.cfg.Model, Input: texts, EncodingFormat: "float"}
	if r.cfg.Shorten {
		body.Dimensions = r.cfg.Dimensions
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, 0, err
	}
	address := strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1") + "/v1/embeddings"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(raw))
	if err != nil {
		return nil, 0, errors.New("the address of the embedding service is none")
	}
	req.Header.Set("Content-Type", "application/json")
	if key := fields["apiKey"]; !key.Empty() {
		req.Header.Set("Authorization", "Bearer "+key.Reveal())
	}
	response, err := r.client.Do(req)
	if err != nil {
		return nil, 0, passing{error: errors.New("the embedding service was not reached")}
	}
	defer response.Body.Close()
	return r.decode(response, len(texts))
}

// decode reads a response of n vectors. Its errors do not quote the response.
func (r *remote) decode(response *http.Response, n int) ([][]float32, int64, error) {
	switch {
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500:
		after := wait.Told(response.Header, r.now(), maxRetryAfter)
		return nil, 0, passing{fmt.Errorf("the embedding service refused with status %d", response.StatusCode), after}
	case response.StatusCode != http.StatusOK:
		return nil, 0, fmt.Errorf("the embedding service refused with status %d", response.StatusCode)
	}
	limit := int64(1<<20 + n*r.cfg.Dimensions*32)
	raw, err := io.ReadAll(io.LimitReader(response.Body, limit+1))
	if err != nil {
		return nil, 0, passing{error: errors.New("the embedding service broke off")}
	}
	var body embeddingResponse
	if int64(len(raw)) > limit || json.Unmarshal(raw, &body) != nil {
		return nil, 0, errors.New("the embedding service sent no embeddings")
	}
	vectors := make([][]float32, n)
	for _, item := range body.Data {
		var vector []float32
		if err := strictjson.Decode(item.Embedding, &vector); err != nil {
			return nil, 0, errors.New("the embedding service sent an embedding that is not a list of numbers")
		}
		if item.Index < 0 || item.Index >= n || vectors[item.Index] != nil || len(vector) != r.cfg.Dimensions {
			return nil, 0, errors.New("the embedding service sent other embeddings than were asked for")
		}
		vectors[item.Index] = vector
	}
	if len(body.Data) != n {
		return nil, 0, errors.New("the embedding service sent too few embeddings")
	}
	return vectors, max(body.Usage.TotalTokens, 0), nil
}
