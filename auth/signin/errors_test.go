package signin

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
)

// The refusals of the kit have better-auth's codes and texts.
func TestRefusalsOfTheKit(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{auth.ErrUserDisabled, 403, "BANNED_USER"},
		{auth.ErrUserNotFound, 401, "UNAUTHORIZED"},
		{capability.ErrUnauthenticated, 401, "UNAUTHORIZED"},
		{auth.ErrMailUnavailable, 503, "VERIFICATION_EMAIL_NOT_ENABLED"},
		{capability.ErrCSRF, 403, "INVALID_ORIGIN"},
		{errHashingBusy, 503, "SERVICE_UNAVAILABLE"},
		{capability.ErrInvalidRequest.Saying("A name."), 400, "VALIDATION_ERROR"},
		{mailcode.ErrInvalid.Because(errors.New("x")), 400, "INVALID_OTP"},
		{errors.New("disk full"), 500, "INTERNAL_SERVER_ERROR"},
	} {
		got := auth.LibraryRefusal(fmt.Errorf("while signing in: %w", c.err))
		if got.Status != c.status || got.Code != c.code {
			t.Errorf("%v becomes %d %s, want %d %s", c.err, got.Status, got.Code, c.status, c.code)
		}
	}
}
