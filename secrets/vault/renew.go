package vault

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// retryRenewal is the delay after which a failed renewal is retried.
const retryRenewal = 5 * time.Second

// renewer renews the token after two thirds of its TTL. It starts with the first call, because New
// does no I/O.
type renewer struct {
	vault *Vault

	mu      sync.Mutex
	timer   *time.Timer
	started bool
	closed  bool
}

func (r *renewer) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started && !r.closed {
		r.started = true
		r.timer = time.AfterFunc(0, r.look)
	}
}

func (r *renewer) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = true; r.timer != nil {
		r.timer.Stop()
	}
}

func (r *renewer) again(after time.Duration, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.timer = time.AfterFunc(after, f)
	}
}

// look looks up the TTL of the token.
func (r *renewer) look() {
	var response struct {
		Data struct {
			TTL       int64 `json:"ttl"`
			Renewable bool  `json:"renewable"`
		} `json:"data"`
	}
	if err := r.vault.call(context.Background(), http.MethodGet, "auth/token/lookup-self", nil, nil, &response); err != nil {
		r.failed(err)
		return
	}
	ttl := time.Duration(response.Data.TTL) * time.Second
	if ttl > 0 && !response.Data.Renewable {
		r.vault.cfg.Log.Warn("vault: the token expires and cannot be renewed", slog.Duration("ttl", ttl))
	}
	if ttl > 0 && response.Data.Renewable {
		r.again(ttl*2/3, r.renew)
	}
}

func (r *renewer) renew() {
	var response struct {
		Auth struct {
			LeaseDuration int64 `json:"lease_duration"`
			Renewable     bool  `json:"renewable"`
		} `json:"auth"`
	}
	if err := r.vault.call(context.Background(), http.MethodPost, "auth/token/renew-self", nil, []byte(`{}`), &response); err != nil {
		r.failed(err)
		return
	}
	if ttl := time.Duration(response.Auth.LeaseDuration) * time.Second; ttl > 0 && response.Auth.Renewable {
		r.again(ttl*2/3, r.renew)
	}
}

func (r *renewer) failed(err error) {
	r.vault.cfg.Log.Warn("vault: the token was not renewed", slog.Any("error", err))
	r.again(retryRenewal, r.look)
}
