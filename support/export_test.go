package support

import "net/http"

// ReachSNS makes s ask SNS through another transport.
func ReachSNS(s *Support, transport http.RoundTripper) { s.ses.Client.Transport = transport }
