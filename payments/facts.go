package payments

import (
	"bytes"
	"encoding/json"
	"maps"
)

// Facts are the known facts of one purchase, as independent registers. Each register holds the
// statement with the highest version; of two with the same version, the one whose content is larger
// in the order of bytes.
type Facts struct {
	Environment  StoreEnvironment     `json:"environment,omitempty"`
	Lifecycle    register[Lifecycle]  `json:"lifecycle,omitzero"`
	Price        register[Price]      `json:"price,omitzero"`
	Revoke       register[Revoke]     `json:"revoke,omitzero"`
	Reference    register[references] `json:"reference,omitzero"`
	AccountToken register[string]     `json:"accountToken,omitzero"`
	CustomerID   register[string]     `json:"customerId,omitzero"`
	// Acknowledge says that the rail requires, or required, an acknowledgment.
	Acknowledge bool `json:"acknowledge,omitempty"`
	// ReplacedBy is the purchase that replaced this one.
	ReplacedBy string `json:"replacedBy,omitempty"`
	// Begins is when a pass began for its subject at the earliest, and Used how much of it others had
	// before; they are set where a pass was moved, in milliseconds.
	Begins Instant `json:"begins,omitempty"`
	Used   Instant `json:"used,omitempty"`
	// Charges are by their id; they are rows of their own.
	Charges map[string]ChargeFacts `json:"-"`
}

// references holds the ids by which the rail finds the purchase, and its ownership.
type references struct {
	RawRef    string    `json:"rawRef,omitempty"`
	Ownership Ownership `json:"ownership,omitempty"`
}

// ChargeFacts are the known facts of one charge.
type ChargeFacts struct {
	Charge  register[Charge]            `json:"charge,omitzero"`
	Refunds map[string]register[Refund] `json:"refunds,omitempty"`
}

// register holds the statement with the highest version.
type register[T any] struct {
	Version int64 `json:"version"`
	Value   *T    `json:"value"`
}

func said[T any](version int64, value *T) register[T] { return register[T]{version, value} }

// merge returns the register with the higher version.
func (r register[T]) merge(other register[T]) register[T] {
	switch {
	case other.Value == nil:
		return r
	case r.Value == nil || other.Version > r.Version:
		return other
	case other.Version == r.Version && bytes.Compare(content(other.Value), content(r.Value)) > 0:
		return other
	}
	return r
}

func content(value any) []byte {
	text, _ := json.Marshal(value) // of plain data
	return text
}

// Merge returns the facts with an observation added. The result does not depend on the order in
// which observations are merged, nor on repetitions; f is not changed.
func Merge(f Facts, o Observation) Facts {
	if o.Environment > f.Environment {
		f.Environment = o.Environment
	}
	f.Lifecycle = f.Lifecycle.merge(said(o.Version, o.Lifecycle))
	f.Price = f.Price.merge(said(o.Version, o.Price))
	f.Revoke = f.Revoke.merge(said(o.Version, o.Revoke))
	if o.RawRef != "" || o.Ownership != "" {
		f.Reference = f.Reference.merge(said(o.Version, &references{o.RawRef, o.Ownership}))
	}
	if o.AccountToken != "" {
		f.AccountToken = f.AccountToken.merge(said(o.Version, &o.AccountToken))
	}
	if o.CustomerID != "" {
		f.CustomerID = f.CustomerID.merge(said(o.Version, &o.CustomerID))
	}
	f.Acknowledge = f.Acknowledge || o.NeedsAcknowledge
	if len(o.Charges)+len(o.Refunds) == 0 {
		return f
	}
	f.Charges = maps.Clone(f.Charges)
	if f.Charges == nil {
		f.Charges = make(map[string]ChargeFacts)
	}
	for _, charge := range o.Charges {
		known := f.Charges[charge.ID]
		known.Charge = mergeCharge(known.Charge, said(o.Version, &charge))
		f.Charges[charge.ID] = known
	}
	for _, refund := range o.Refunds {
		version := o.Version
		if refund.Version > 0 {
			version = refund.Version
		}
		known := f.Charges[refund.ChargeID]
		refunds := maps.Clone(known.Refunds)
		if refunds == nil {
			refunds = make(map[string]register[Refund])
		}
		refunds[refund.ID] = refunds[refund.ID].merge(said(version, &refund))
		known.Refunds = refunds
		f.Charges[refund.ChargeID] = known
	}
	return f
}

// mergeCharge merges two statements about a charge. A settled one wins over one that is not
// settled, and one for a trial, then one for a change, over one for a period, because some rails
// report the newest charge under the period that is to follow it.
func mergeCharge(known, other register[Charge]) register[Charge] {
	if known.Value != nil && other.Value != nil {
		switch a, b := known.Value.rank(), other.Value.rank(); {
		case a > b:
			return known
		case b > a:
			return other
		}
	}
	return known.merge(other)
}

func (c Charge) rank() int {
	switch {
	case !c.Settled:
		return 0
	case c.Trial:
		return 3
	case c.Proration:
		return 2
	}
	return 1
}

// replaced adds that another purchase replaced this one.
func (f Facts) replaced(by string) Facts {
	f.ReplacedBy = max(f.ReplacedBy, by)
	return f
}

// arrived reports whether money ever arrived by this charge, which a refund implies and a credit
// does not.
func (c ChargeFacts) arrived() bool {
	if c.Charge.Value != nil && c.Charge.Value.Settled && !c.Charge.Value.Trial {
		return true
	}
	for _, r := range c.Refunds {
		if !r.Value.Reversed && !r.Value.Credit {
			return true
		}
	}
	return false
}

// gone returns the refunded part of the charge in basis points, and whether the payer's bank took
// it. Amounts are summed before they are rounded, so that all parts together are the whole.
func (c ChargeFacts) gone() (basisPoints int64, chargeback bool) {
	paid := c.paid()
	if c.Charge.Value != nil {
		paid.Quantity, paid.AmountMinor = max(paid.Quantity, 1), max(paid.AmountMinor, 0)
	}
	var amount, quantity int64
	for _, r := range c.Refunds {
		refund := r.Value
		if refund.Reversed {
			continue
		}
		if refund.Chargeback {
			chargeback = true
		}
		switch {
		case refund.Full:
			basisPoints = whole
		case refund.BasisPoints > 0:
			basisPoints = add(basisPoints, refund.BasisPoints, whole)
		case refund.Quantity > 0:
			quantity = add(quantity, refund.Quantity, paid.Quantity)
		case refund.AmountMinor > 0:
			amount = add(amount, refund.AmountMinor, paid.AmountMinor)
		}
	}
	basisPoints = add(basisPoints, proportion(quantity, paid.Quantity), whole)
	return add(basisPoints, proportion(amount, paid.AmountMinor), whole), chargeback
}

// whole is everything, in basis points.
const whole = 10_000

// add returns the sum of two parts, at most all of it.
func add(a, b, all int64) int64 { return a + min(b, all-a) }

// proportion returns part of all in basis points; only all of it is whole.
func proportion(part, all int64) int64 {
	switch part {
	case 0:
		return 0
	case all:
		return whole
	}
	return int64(float64(part) / float64(all) * whole)
}

// back returns whether any money arrived for the purchase and, of what was paid for the newest
// period and the changes within it, whether all of it went back and whether the
// payer's bank took any.
func (f Facts) back() (arrived, all, chargeback bool) {
	latest, arrived := f.latest()
	if !arrived {
		return false, false, false
	}
	all = true
	begun := f.Charges[latest].paid().At
	for id, c := range f.Charges {
		if paid := c.paid(); paid.Separate || id != latest && (!paid.Proration || paid.At < begun) || !c.arrived() {
			continue
		}
		gone, taken := c.gone()
		all, chargeback = all && gone == whole, chargeback || taken
	}
	return true, all, chargeback
}

// paid returns the charge, the zero value if it is not known.
func (c ChargeFacts) paid() (paid Charge) {
	if c.Charge.Value != nil {
		paid = *c.Charge.Value
	}
	return paid
}

// latest returns the newest charge by which money arrived for the purchase; charges for a change
// within a period count only if there is no other.
func (f Facts) latest() (id string, ok bool) {
	var at Instant
	var change bool
	for each, c := range f.Charges {
		paid := c.paid()
		if paid.Separate || !c.arrived() {
			continue
		}
		newer := paid.At > at || paid.At == at && each > id
		if !ok || paid.Proration == change && newer || change && !paid.Proration {
			id, at, change, ok = each, paid.At, paid.Proration, true
		}
	}
	return id, ok
}

// paidThrough returns the end of the last period that was paid for.
func (f Facts) paidThrough() (until Instant) {
	for _, c := range f.Charges {
		if paid := c.paid(); paid.Settled && !paid.Separate {
			until = max(until, paid.PeriodEnd)
		}
	}
	return until
}

func (f Facts) ownership() Ownership {
	if f.Reference.Value != nil && f.Reference.Value.Ownership != "" {
		return f.Reference.Value.Ownership
	}
	return OwnershipPurchased
}

func (f Facts) rawRef() string {
	if f.Reference.Value == nil {
		return ""
	}
	return f.Reference.Value.RawRef
}

func (f Facts) customer() string {
	if f.CustomerID.Value == nil {
		return ""
	}
	return *f.CustomerID.Value
}
