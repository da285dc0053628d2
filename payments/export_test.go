package payments

import "context"

// PurchasesQuery is the statement of a list of purchases.
var PurchasesQuery = purchasesQuery

// The statements that a reconcile run reads with.
const (
	DueQuery      = dueQuery
	OwedQuery     = owedQuery
	FailedQuery   = failedQuery
	LapsedQuery   = lapsedQuery
	RefundedQuery = refundedQuery
)

// RecallQueries are the statements that make due what a clock put off.
var RecallQueries = recallQueries

// OwnCustomerQuery is the statement that finds a subject's customer.
var OwnCustomerQuery = ownCustomerQuery

// CreditedQuery is the statement by which erasure finds charges.
const CreditedQuery = creditedQuery

// WebhookBudget is how long a rail may be asked while its webhook waits.
const WebhookBudget = webhookBudget

// Lapse is what the hourly job does about what ended by time.
func (p *Payments) Lapse() error { return p.lapse(context.Background()) }
