package iosstore

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/jws"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

const (
	audience = "appstoreconnect-v1"
	// tokenLife is how long the token of a request is valid.
	tokenLife = 5 * time.Minute
	// The API keeps notifications for this long.
	keptProduction = 180 * 24 * time.Hour
	keptSandbox    = 30 * 24 * time.Hour
)

// repeatable lists error codes of the API that a retry may resolve, despite their status.
var repeatable = map[int]bool{4040002: true, 4040004: true, 4040006: true, 5000001: true}

// call sends a request with a proof made for it; found is false when there is no
// such transaction.
func (r *rail) call(ctx context.Context, a payments.Access, method, path string, query url.Values, body, into any) (found bool, err error) {
	request := outbound.Request{Now: a.Now, Method: method, Base: r.sandbox, Path: path, Query: query, Repeatable: true, Header: http.Header{}}
	if a.Environment == payments.EnvironmentProduction {
		request.Base = r.production
	}
	token, err := bearer(a)
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		if request.Body, err = json.Marshal(body); err != nil {
			return false, err
		}
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := r.client.JSON(ctx, request, into)
	if err != nil || response.OK() {
		return err == nil, err
	}
	var failure struct {
		Code int `json:"errorCode"`
	}
	_ = json.Unmarshal(response.Body, &failure) // a response of another form has no code
	switch {
	case repeatable[failure.Code]:
		return false, payments.Transient(r.client.Unexpected(response), 0)
	case response.Status == http.StatusNotFound || failure.Code == 4000006:
		return false, nil
	}
	return false, r.client.Unexpected(response)
}

// bearer returns the token of a request.
func bearer(a payments.Access) (string, error) {
	key, err := jws.ECKey(a.Credentials["privateKey"].Reveal())
	if err != nil {
		return "", err
	}
	now := a.Now()
	return jws.Sign(key, map[string]any{"kid": a.Credentials["keyId"].Reveal(), "typ": "JWT"}, map[string]any{
		"iss": a.Credentials["issuerId"].Reveal(), "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(),
		"aud": audience, "bid": a.Credentials["bundleId"].Reveal(),
	})
}

// redeem takes a signed transaction, which is a proof by itself, or the id of one.
func (r *rail) redeem(ctx context.Context, a payments.Access, s payments.Submission) ([]payments.Observation, error) {
	raw := s.SignedTransaction
	if raw == "" {
		if !identifier.MatchString(s.TransactionID) {
			return nil, payments.ErrInvalidReceipt
		}
		var err error
		if raw, err = r.signedTransaction(ctx, a, s.TransactionID); err != nil {
			return nil, err
		}
	}
	t, err := r.transaction(raw, a)
	if err != nil {
		return nil, err
	}
	observations := fromTransaction(t, false)
	if t.Type != typeRenewing || t.ExpiresDate > a.Now().UnixMilli() {
		return observations, nil
	}
	if e, _ := environment(t.Environment); e != a.Environment {
		return observations, nil
	}
	// The transaction of a device may be old, and the store may know a newer period. The
	// transaction suffices while the store is unavailable.
	if status, err := r.statuses(ctx, a, t.OriginalID); err == nil {
		observations = append(observations, status...)
	}
	return observations, nil
}

func (r *rail) signedTransaction(ctx context.Context, a payments.Access, id string) (string, error) {
	var response struct {
		Signed string `json:"signedTransactionInfo"`
	}
	found, err := r.call(ctx, a, http.MethodGet, "/inApps/v1/transactions/"+outbound.Segment(id), nil, nil, &response)
	if err == nil && !found {
		err = payments.ErrPurchaseNotFound
	}
	return response.Signed, err
}

// fetch asks for the status of a subscription and its newest periods, or for a
// transaction.
func (r *rail) fetch(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
	if ref.Kind == payments.KindOneTime || ref.Kind == payments.KindConsumable {
		return r.fetchTransaction(ctx, a, ref.TransactionID)
	}
	observations, err := r.statuses(ctx, a, ref.TransactionID)
	if errors.Is(err, payments.ErrPurchaseNotFound) && ref.Kind == "" {
		return r.fetchTransaction(ctx, a, ref.TransactionID)
	}
	if err != nil {
		return nil, err
	}
	past, err := r.periods(ctx, a, ref.TransactionID)
	return append(observations, past...), err
}

func (r *rail) fetchTransaction(ctx context.Context, a payments.Access, id string) ([]payments.Observation, error) {
	raw, err := r.signedTransaction(ctx, a, id)
	if err != nil {
		return nil, err
	}
	t, err := r.transaction(raw, a)
	if err != nil {
		return nil, err
	}
	return fromTransaction(t, true), nil
}

// statuses asks for the newest transaction and renewal of a subscription.
func (r *rail) statuses(ctx context.Context, a payments.Access, originalID string) ([]payments.Observation, error) {
	var response struct {
		app
		Data []struct {
			Last []struct {
				Status      int    `json:"status"`
				OriginalID  string `json:"originalTransactionId"`
				Transaction string `json:"signedTransactionInfo"`
				Renewal     string `json:"signedRenewalInfo"`
			} `json:"lastTransactions"`
		} `json:"data"`
	}
	found, err := r.call(ctx, a, http.MethodGet, "/inApps/v1/subscriptions/"+outbound.Segment(originalID), nil, nil, &response)
	if err != nil {
		return nil, err
	}
	if found {
		if _, err := response.check(a.Credentials); err != nil {
			return nil, payments.ErrAppMismatch
		}
	}
	for _, group := range response.Data {
		for _, last := range group.Last {
			if last.OriginalID != originalID {
				continue
			}
			t, err := r.transaction(last.Transaction, a)
			if err != nil {
				return nil, err
			}
			n, err := r.renewal(last.Renewal, a)
			if err != nil {
				return nil, err
			}
			return append(fromTransaction(t, true), fromStatus(last.Status, t, n, n.SignedDate)...), nil
		}
	}
	return nil, payments.ErrPurchaseNotFound
}

// periods fetches the newest transactions of a subscription, whose charges may have been missed.
func (r *rail) periods(ctx context.Context, a payments.Access, originalID string) ([]payments.Observation, error) {
	var response struct {
		app
		Signed []string `json:"signedTransactions"`
	}
	query := url.Values{"sort": {"DESCENDING"}, "productType": {"AUTO_RENEWABLE"}}
	found, err := r.call(ctx, a, http.MethodGet, "/inApps/v2/history/"+outbound.Segment(originalID), query, nil, &response)
	if err != nil || !found {
		return nil, err
	}
	var all []payments.Observation
	for _, raw := range response.Signed {
		t, err := r.transaction(raw, a)
		if err != nil {
			return nil, err
		}
		if t.Type == typeRenewing && t.OriginalID == originalID {
			all = append(all, fromTransaction(t, false)...)
		}
	}
	return all, nil
}

// history reads the notifications that the store has sent, or tried to.
func (r *rail) history(ctx context.Context, a payments.Access, w payments.Window) (payments.HistoryPage, error) {
	kept := keptSandbox
	if a.Environment == payments.EnvironmentProduction {
		kept = keptProduction
	}
	since := max(w.Since, payments.At(a.Now().Add(-kept)))
	var query url.Values
	if w.Cursor != "" {
		query = url.Values{"paginationToken": {w.Cursor}}
	}
	var response struct {
		Next    string `json:"paginationToken"`
		More    bool   `json:"hasMore"`
		History []struct {
			Signed string `json:"signedPayload"`
		} `json:"notificationHistory"`
	}
	body := map[string]int64{"startDate": int64(since), "endDate": int64(w.Until)}
	if _, err := r.call(ctx, a, http.MethodPost, "/inApps/v1/notifications/history", query, body, &response); err != nil {
		return payments.HistoryPage{}, err
	}
	var page payments.HistoryPage
	for _, sent := range response.History {
		if d, err := r.sent(sent.Signed, a); err == nil { // one that is not for us stops no others
			page.Deliveries = append(page.Deliveries, d)
		}
	}
	if response.More {
		page.Next = response.Next
	}
	return page, nil
}

// sent verifies a notification as of when it was signed.
func (r *rail) sent(raw string, a payments.Access) (payments.Delivery, error) {
	token, err := jws.Parse(raw, jws.ES256)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidReceipt.Because(err)
	}
	n, err := parseNotification(token.Payload)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidReceipt.Because(err)
	}
	if err := r.signed(raw, a, &n, func() int64 { return n.SignedDate }); err != nil {
		return payments.Delivery{}, err
	}
	d, err := delivery(token.Payload, a)
	if err != nil {
		return payments.Delivery{}, payments.ErrAppMismatch
	}
	d.Body, err = json.Marshal(map[string]string{"signedPayload": raw})
	return d, err
}

// pricing reads what a subscription pays from its renewal.
func (r *rail) pricing(ctx context.Context, a payments.Access, ref payments.Ref) (payments.Price, error) {
	observations, err := r.statuses(ctx, a, ref.TransactionID)
	if err != nil {
		return payments.Price{}, err
	}
	for _, o := range observations {
		if o.Price != nil {
			return *o.Price, nil
		}
	}
	return payments.Price{}, payments.ErrPurchaseNotFound
}
