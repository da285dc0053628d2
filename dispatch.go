package kit

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kv"
)

// SignatureHeader carries the proof of a job dispatch.
const SignatureHeader = "Kit-Signature"

// signatureTolerance is how far the sender's clock may be off, either way.
const signatureTolerance = 300 * time.Second

// maxSignatures bounds the v1 values of one header, so that keys can be rotated.
const maxSignatures = 4

// maxJobKey bounds the unique key of a dispatched job, in bytes.
const maxJobKey = 255

// SignDispatch makes the Kit-Signature of POST {path}, the path as clients see
// it: "t=<unix seconds>,v1=<hex HMAC-SHA256(key, t.path.body)>".
func SignDispatch(key []byte, now time.Time, path string, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	return "t=" + t + ",v1=" + hex.EncodeToString(dispatchMAC(key, t, path, body))
}

func dispatchMAC(key []byte, t, path string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(t + "." + path + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// dispatcher enqueues jobs by name for an outside scheduler.
type dispatcher struct {
	key       []byte
	spent     kv.Store // signatures that were used
	now       func() time.Time
	mountPath string
	bindings  []*binding
}

// verify checks the signature of a dispatch. Without a key every dispatch is refused.
func (d dispatcher) verify(r *http.Request, body []byte) error {
	if len(d.key) == 0 {
		return errors.New("no key of dispatches is configured")
	}
	header, err := proof.Header(r.Header, SignatureHeader)
	if err != nil {
		return err
	}
	t, signatures := parseSignature(header)
	if err := proof.Fresh(t, d.now(), signatureTolerance); err != nil {
		return err
	}
	want := dispatchMAC(d.key, t, d.mountPath+r.URL.Path, body)
	for _, given := range signatures {
		if mac, err := hex.DecodeString(given); err == nil && hmac.Equal(mac, want) {
			return d.spend(r.Context(), mac)
		}
	}
	return proof.ErrUnmatched
}

// spend refuses a signature that was used before, as long as it is within the tolerance.
func (d dispatcher) spend(ctx context.Context, mac []byte) error {
	first, err := d.spent.PutIfAbsent(ctx, "kit/dispatch/"+hex.EncodeToString(mac), nil, 2*signatureTolerance)
	switch {
	case err != nil:
		return capability.ErrUnavailable.Because(err)
	case !first:
		return errors.New("the signature was used before")
	}
	return nil
}

func parseSignature(header string) (t string, signatures []string) {
	for part := range strings.SplitSeq(header, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch {
		case key == "t":
			t = value
		case key == "v1" && len(signatures) < maxSignatures:
			signatures = append(signatures, value)
		}
	}
	return t, signatures
}

// workflow is the body of a dispatch. Jobs of one key run one after another:
// while one waits or runs, a second is not added.
type workflow struct {
	Payload json.RawMessage `json:"payload,omitempty"`
	Key     string          `json:"key,omitempty"`
}

type workflowResponse struct {
	JobID string `json:"jobId"`
}

func (d dispatcher) postWorkflow(c *capability.Call, in workflow) (workflowResponse, error) {
	if len(in.Key) > maxJobKey {
		return workflowResponse{}, capability.ErrInvalidRequest.Saying("key has at most %d bytes.", maxJobKey)
	}
	name := c.Param("binding")
	for _, b := range d.bindings {
		if !b.queue.Has(name) {
			continue
		}
		allowed := b.queue.Dispatch(name)
		if !allowed.Allowed() {
			break
		}
		if err := allowed.Check(in.Payload); err != nil {
			return workflowResponse{}, capability.ErrInvalidRequest.Saying("payload: %s", err.Error())
		}
		id, err := enqueue(c.Context(), b.queue, name, in)
		return workflowResponse{JobID: id}, err
	}
	return workflowResponse{}, capability.ErrNotFound.Saying("There is no job binding %q that can be started from outside.", name)
}

func enqueue(ctx context.Context, q *jobs.Queue, name string, in workflow) (string, error) {
	var opts []jobs.EnqueueOption
	if in.Key != "" {
		opts = append(opts, jobs.Key(in.Key))
	}
	id, err := q.Enqueue(ctx, name, in.Payload, opts...)
	if err != nil {
		return "", fmt.Errorf("enqueue %s: %w", name, err)
	}
	return id, nil
}
