package sign

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit/payments/internal/signature"
)

// CardProcessor returns the headers of a delivery of card_processor.
func CardProcessor(secret string, body []byte, at time.Time) http.Header {
	form := signature.Header{Separator: ",", Time: "t", Signature: "v1", Joint: "."}
	return http.Header{"Stripe-Signature": {form.Sign([]byte(secret), body, at)}}
}

// MerchantA returns the headers of a delivery of merchant_a.
func MerchantA(secret string, body []byte, at time.Time) http.Header {
	form := signature.Header{Separator: ";", Time: "ts", Signature: "h1", Joint: ":"}
	return http.Header{"Paddle-Signature": {form.Sign([]byte(secret), body, at)}}
}

// MerchantB returns the headers of a delivery of merchant_b, signed with the
// bytes of the secret's text.
func MerchantB(secret, id string, body []byte, at time.Time) http.Header {
	h := http.Header{}
	signature.SignStandard(h, []byte(secret), id, body, at)
	return h
}
