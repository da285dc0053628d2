package outbound

import (
	"context"
	"time"
)

// Waiting replaces real time between tries.
func (c *Client) Waiting(wait func(context.Context, time.Duration) error) { c.wait = wait }
