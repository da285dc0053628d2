package auth

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/kitbackend/kit/capability"
)

const (
	cacheShards = 64
	// cacheBytes bounds the cache: about 40,000 tokens of 500 bytes.
	cacheBytes = 32 << 20
	// entryBytes is the approximate size of an entry without its token.
	entryBytes = 320
)

// accessToken holds the claims of a verified token.
type accessToken struct {
	caller    capability.Caller
	expiresAt int64 // seconds
	rotation  int64 // the refresh counter it confirms; 0: none
}

// tokenCache keeps verified tokens under their whole text, so a hit proves as
// much as the signature did when it was checked; readers of an entry still
// check the time and revocation. Only verified tokens enter: a flood of
// forged ones cannot push the good ones out.
type tokenCache struct {
	seed   maphash.Seed
	shards [cacheShards]cacheShard
}

type cacheShard struct {
	mu     sync.RWMutex
	tokens map[string]accessToken
	bytes  int
}

func newTokenCache() *tokenCache {
	c := &tokenCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].tokens = make(map[string]accessToken)
	}
	return c
}

func (c *tokenCache) shard(raw string) *cacheShard {
	return &c.shards[maphash.String(c.seed, raw)%cacheShards]
}

func (c *tokenCache) get(raw string) (accessToken, bool) {
	s := c.shard(raw)
	s.mu.RLock()
	token, ok := s.tokens[raw]
	s.mu.RUnlock()
	return token, ok
}

func (c *tokenCache) put(raw string, token accessToken) {
	s := c.shard(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(raw)
	for old := range s.tokens { // in no order: any token may have to be verified again
		if s.bytes+len(raw)+entryBytes <= cacheBytes/cacheShards {
			break
		}
		s.remove(old)
	}
	s.tokens[strings.Clone(raw)] = token
	s.bytes += len(raw) + entryBytes
}

func (c *tokenCache) remove(raw string) {
	s := c.shard(raw)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(raw)
}

func (s *cacheShard) remove(raw string) {
	if _, ok := s.tokens[raw]; ok {
		delete(s.tokens, raw)
		s.bytes -= len(raw) + entryBytes
	}
}
