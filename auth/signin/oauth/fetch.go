package oauth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/kitbackend/kit/internal/outbound"
	"github.com/kitbackend/kit/internal/strictjson"
)

// Bounds of requests to a provider.
const (
	fetchTimeout = 10 * time.Second
	fetchSize    = 1 << 20 // bytes, unpacked
	fetchHeader  = 64 << 10
)

var errResponseTooLarge = errors.New("oauth: the response is too large")

// newFetcher makes the HTTP client for one provider. Responses are bounded in size
// and time, and redirects are not followed.
func newFetcher(addresses []string, network Network) *http.Client {
	transport := network.Transport
	if transport == nil {
		transport = dialing(addresses)
	}
	return &http.Client{
		Timeout:       cmp.Or(network.Timeout, fetchTimeout),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     limited{transport},
	}
}

// dialing returns a transport that dials private addresses only for hosts that the application has
// named.
func dialing(addresses []string) *http.Transport {
	named := make(map[string]bool, len(addresses))
	for _, address := range addresses {
		if u, err := url.Parse(address); err == nil {
			named[u.Hostname()] = true
		}
	}
	guarded := &net.Dialer{Timeout: fetchTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(address); err != nil || !outbound.Public(to.Addr()) {
			return fmt.Errorf("%w: %s is not a public address", ErrUnreachable, address)
		}
		return nil
	}}
	open := &net.Dialer{Timeout: fetchTimeout}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _, err := net.SplitHostPort(address); err == nil && named[host] {
				return open.DialContext(ctx, network, address)
			}
			return guarded.DialContext(ctx, network, address)
		},
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    fetchTimeout,
		MaxResponseHeaderBytes: fetchHeader,
		MaxConnsPerHost:        16,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        time.Minute,
	}
}

// limited bounds the bodies of responses: reading past the bound fails.
type limited struct{ next http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = &limitedBody{response.Body, fetchSize}
	return response, nil
}

type limitedBody struct {
	io.ReadCloser
	left int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errResponseTooLarge
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	return n, err
}

// fetchJSON fetches a JSON object or array, with an access token unless that is empty.
func fetchJSON(ctx context.Context, client *http.Client, address, accessToken string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "kit") // GitHub serves no request without one
	if accessToken != "" {
		request.Header.Set("Authorization", "Bearer "+accessToken)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: status %d", ErrUnreachable, response.StatusCode)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: status %d", ErrRefused, response.StatusCode)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if err := decodeJSON(body, into); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// decodeJSON reads the JSON of a provider: no member twice, numbers as they
// are written.
func decodeJSON(body []byte, into any) error {
	if err := strictjson.Valid(body); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	return decoder.Decode(into)
}
