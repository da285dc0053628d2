package payments

import (
	"slices"

	"github.com/kitbackend/kit/capability"
)

// smallBody bounds request bodies other than lists of proofs.
const smallBody = 64 << 10

func (p *Payments) routes() []capability.Route {
	user := capability.User()
	reach := []*capability.Error{ErrRailNotEnabled, ErrRailNotConfigured, ErrRailUnavailable}
	with := func(own ...*capability.Error) []*capability.Error { return append(slices.Clone(reach), own...) }
	routes := []capability.Route{
		{Method: "POST", Path: "/purchases", Guard: user, MaxBody: smallBody, Summary: "Submit a receipt or signed transaction.",
			Refusals: with(ErrInvalidReceipt, ErrAppMismatch, ErrEnvironmentMismatch, ErrProductNotFound, ErrPurchasePending, ErrPurchaseClaimed, ErrPurchaseNotFound, ErrBillingDenied),
			Handle:   capability.JSON(201, p.postPurchase)},
		{Method: "GET", Path: "/entitlements", Guard: user, Summary: "What the caller's subject is entitled to.",
			Handle: capability.JSON(200, p.getEntitlements)},
		{Method: "POST", Path: "/restore", Guard: user, Summary: "Give what a store vouches for to the caller's subject.",
			Refusals: with(ErrBillingDenied), Handle: capability.JSON(200, p.postRestore)},
		{Method: "POST", Path: "/checkout", Guard: user, MaxBody: smallBody, Summary: "Make a page where the caller pays.",
			Headers:  []capability.Param{{Name: "Idempotency-Key", Summary: "Makes a repeated request one checkout at a rail that takes such keys: 1 to 255 visible ASCII characters."}},
			Refusals: with(ErrProductNotFound, ErrProductUnavailable, ErrCheckoutUnsupported, ErrAlreadySubscribed, ErrBillingDenied),
			Handle:   capability.JSON(201, p.postCheckout)},
		{Method: "POST", Path: "/portal", Guard: user, MaxBody: smallBody, Summary: "Make a page where the caller manages what was bought.",
			Refusals: with(ErrCustomerNotFound, ErrPortalUnsupported, ErrBillingDenied), Handle: capability.OptionalJSON(201, p.postPortal)},
		{Method: "GET", Path: "/pricing", Guard: user, Summary: "What the caller's subscriptions pay and when that changes.",
			Handle: capability.JSON(200, p.getPricing)},
	}
	for _, r := range p.cfg.Rails {
		rail := p.rails[r.ID]
		routes = append(routes, capability.Route{Method: "POST", Path: "/webhooks/" + string(rail.ID), Guard: capability.SignedWebhook(p.verifier(rail)),
			MaxBody: maxWebhook, Summary: "Events of the rail " + string(rail.ID) + ".",
			Refusals: []*capability.Error{ErrInvalidSignature, ErrRailNotConfigured, ErrRailUnavailable}, Handle: capability.Raw(p.receive(rail))})
	}
	return capability.Mount(p.cfg.BasePath, append(routes, p.adminRoutes(with)...)...)
}

func (p *Payments) adminRoutes(with func(...*capability.Error) []*capability.Error) []capability.Route {
	scope := func(name string) capability.Guard { return capability.ControlPlane("payments:" + name) }
	return []capability.Route{
		{Method: "GET", Path: "/admin/catalog", Guard: scope("catalog:read"), Summary: "The catalog.", Handle: capability.JSON(200, p.adminCatalog)},
		{Method: "GET", Path: "/admin/purchases", Guard: scope("purchases:read"), Summary: "List purchases, newest first.",
			Refusals: []*capability.Error{ErrSubjectKind}, Query: purchaseFilters,
			Handle: capability.List(p.adminPurchases)},
		{Method: "GET", Path: "/admin/subscriptions", Guard: scope("subscriptions:read"), Summary: "List subscriptions with what they pay, newest first.",
			Refusals: []*capability.Error{ErrSubjectKind}, Query: purchaseFilters,
			Handle: capability.List(p.adminSubscriptions)},
		{Method: "GET", Path: "/admin/entitlements", Guard: scope("entitlements:read"), Summary: "List subjects with what they are entitled to.",
			Handle: capability.List(p.adminEntitlements)},
		{Method: "GET", Path: "/admin/entitlements/:subjectType/:subjectId", Guard: scope("entitlements:read"), Summary: "What one subject is entitled to.",
			Refusals: []*capability.Error{ErrSubjectKind}, Handle: capability.JSON(200, p.adminEntitlementsOf)},
		{Method: "GET", Path: "/admin/reconcile-runs", Guard: scope("reconcile:read"), Summary: "List reconcile runs, newest first.", Handle: capability.List(p.adminRuns)},
		{Method: "GET", Path: "/admin/discounts", Guard: scope("discounts:read"), Summary: "List discounts, newest first.", Query: []capability.Param{{Name: "rail"}},
			Handle: capability.List(p.adminDiscounts)},
		{Method: "POST", Path: "/admin/discounts", Guard: scope("discounts:create"), MaxBody: smallBody, Summary: "Create a discount at a rail.",
			Refusals: with(ErrDiscountUnsupported, ErrDiscountConflict, ErrProductNotFound, ErrProductUnavailable), Handle: capability.JSON(201, p.postDiscount)},
		{Method: "POST", Path: "/entitlements/grant", Guard: scope("entitlements:grant"), MaxBody: smallBody,
			Summary:  "Grant an entitlement by hand, or look at a purchase again and give it to a subject.",
			Refusals: with(ErrEntitlementUnknown, ErrSubjectKind, ErrPurchaseNotFound, ErrEnvironmentMismatch), Handle: capability.JSON(201, p.postGrant)},
		{Method: "POST", Path: "/entitlements/revoke", Guard: scope("entitlements:revoke"), MaxBody: smallBody, Summary: "Take entitlements away by hand.",
			Refusals: []*capability.Error{ErrSubjectKind, ErrEntitlementNotFound, ErrPurchaseNotFound}, Handle: capability.JSON(200, p.postRevoke)},
	}
}

type purchaseBody struct {
	Rail              RailID `json:"rail"`
	ProductKey        string `json:"productKey,omitempty"`
	SignedTransaction string `json:"signedTransaction,omitempty"`
	TransactionID     string `json:"transactionId,omitempty"`
	PurchaseToken     string `json:"purchaseToken,omitempty"`
	ProductID         string `json:"productId,omitempty"`
	SessionID         string `json:"sessionId,omitempty"`
}

func (p *Payments) postPurchase(c *capability.Call, b purchaseBody) (Submitted, error) {
	s := Submission{SignedTransaction: b.SignedTransaction, TransactionID: b.TransactionID, PurchaseToken: b.PurchaseToken, ProductID: b.ProductID, SessionID: b.SessionID}
	return p.Submit(c.Context(), c.Caller.UserID, SubmitRequest{Rail: b.Rail, ProductKey: b.ProductKey, Submission: s})
}

// getEntitlements includes the account tokens of the subject.
func (p *Payments) getEntitlements(c *capability.Call, _ capability.None) (Entitlements, error) {
	subject, _, err := p.subjectOf(c.Context(), c.Caller.UserID)
	if err != nil {
		return Entitlements{}, err
	}
	e, err := p.Entitlements(c.Context(), subject)
	if err != nil {
		return e, err
	}
	e.AccountTokens = make(map[RailID]string)
	for _, rail := range p.cfg.Rails {
		if rail.Checkout == nil {
			if e.AccountTokens[rail.ID], err = p.AccountToken(c.Context(), subject); err != nil {
				return e, err
			}
		}
	}
	return e, nil
}

type restoreBody struct {
	Rail               RailID      `json:"rail"`
	SignedTransactions []string    `json:"signedTransactions,omitempty"`
	PurchaseTokens     []tokenBody `json:"purchaseTokens,omitempty"`
}

type tokenBody struct {
	Token     string `json:"token"`
	ProductID string `json:"productId,omitempty"`
}

func (p *Payments) postRestore(c *capability.Call, b restoreBody) (Restored, error) {
	q := RestoreRequest{Rail: b.Rail}
	for _, signed := range b.SignedTransactions {
		q.Items = append(q.Items, Submission{SignedTransaction: signed})
	}
	for _, token := range b.PurchaseTokens {
		q.Items = append(q.Items, Submission{PurchaseToken: token.Token, ProductID: token.ProductID})
	}
	return p.Restore(c.Context(), c.Caller.UserID, q)
}

type checkoutBody struct {
	ProductKey   string `json:"productKey"`
	Rail         RailID `json:"rail"`
	DiscountCode string `json:"discountCode,omitempty"`
	Quantity     int64  `json:"quantity,omitempty"`
}

// postCheckout passes the Idempotency-Key to the rail, which makes one checkout for it.
func (p *Payments) postCheckout(c *capability.Call, b checkoutBody) (Bought, error) {
	key, err := c.IdempotencyKey()
	if err != nil {
		return Bought{}, err
	}
	return p.Checkout(c.Context(), c.Caller.UserID, BuyRequest{Rail: b.Rail, ProductKey: b.ProductKey, DiscountCode: b.DiscountCode, Quantity: b.Quantity,
		IdempotencyKey: key})
}

type portalBody struct {
	Rail RailID `json:"rail,omitempty"`
}

func (p *Payments) postPortal(c *capability.Call, b portalBody) (Opened, error) {
	return p.Portal(c.Context(), c.Caller.UserID, b.Rail)
}

func (p *Payments) getPricing(c *capability.Call, _ capability.None) (Pricing, error) {
	return p.Pricing(c.Context(), c.Caller.UserID)
}

// Catalog lists the products and the rails that sell them.
type Catalog struct {
	BillingSubject     SubjectKind   `json:"billingSubject"`
	Rails              []CatalogRail `json:"rails"`
	ManualEntitlements []string      `json:"manualEntitlements"`
	Products           []Product     `json:"products"`
}

// CatalogRail is a rail that is on.
type CatalogRail struct {
	ID               RailID `json:"id"`
	MerchantOfRecord bool   `json:"merchantOfRecord"`
	// Configured says that the rail has credentials.
	Configured bool `json:"configured"`
}

func (p *Payments) adminCatalog(c *capability.Call, _ capability.None) (Catalog, error) {
	out := Catalog{BillingSubject: p.cfg.BillingSubject, Rails: []CatalogRail{}, ManualEntitlements: orEmpty(p.cfg.ManualEntitlements), Products: orEmpty(p.cfg.Products)}
	for _, rail := range p.cfg.Rails {
		_, err := p.access(c.Context(), p.rails[rail.ID])
		out.Rails = append(out.Rails, CatalogRail{rail.ID, rail.MerchantOfRecord, err == nil})
	}
	return out, nil
}

var purchaseFilters = []capability.Param{{Name: "rail"}, {Name: "status", Choices: Status("").Choices()}, {Name: "productKey"},
	{Name: "subjectType", Choices: SubjectKind("").Choices()}, {Name: "subjectId"}}

func filter(c *capability.Call) (PurchaseFilter, error) {
	f := PurchaseFilter{Rail: RailID(c.Query("rail")), Status: Status(c.Query("status")), ProductKey: c.Query("productKey"),
		Subject: Subject{SubjectKind(c.Query("subjectType")), c.Query("subjectId")}}
	for name, text := range map[string]string{"rail": string(f.Rail), "productKey": f.ProductKey, "subjectId": f.Subject.ID} {
		if err := capability.CheckText(name, text, 0, capability.MaxUserID); err != nil {
			return f, err
		}
	}
	if (f.Subject.Type == "") != (f.Subject.ID == "") {
		return f, capability.ErrInvalidRequest.Saying("subjectType and subjectId go together.")
	}
	return f, nil
}

func (p *Payments) adminPurchases(c *capability.Call, page capability.Page) (capability.Items[Purchase], error) {
	f, err := filter(c)
	if err != nil {
		return capability.Items[Purchase]{}, err
	}
	return p.ListPurchases(c.Context(), f, page)
}

func (p *Payments) adminSubscriptions(c *capability.Call, page capability.Page) (capability.Items[Subscription], error) {
	f, err := filter(c)
	if err != nil {
		return capability.Items[Subscription]{}, err
	}
	return p.ListSubscriptions(c.Context(), f, page)
}

func (p *Payments) adminEntitlements(c *capability.Call, page capability.Page) (capability.Items[Entitlements], error) {
	return p.ListEntitlements(c.Context(), page)
}

func (p *Payments) adminEntitlementsOf(c *capability.Call, _ capability.None) (Entitlements, error) {
	return p.Entitlements(c.Context(), Subject{SubjectKind(c.Param("subjectType")), c.Param("subjectId")})
}

func (p *Payments) adminRuns(c *capability.Call, page capability.Page) (capability.Items[Run], error) {
	return p.ListRuns(c.Context(), page)
}

func (p *Payments) adminDiscounts(c *capability.Call, page capability.Page) (capability.Items[Discount], error) {
	if err := capability.CheckText("rail", c.Query("rail"), 0, capability.MaxUserID); err != nil {
		return capability.Items[Discount]{}, err
	}
	return p.ListDiscounts(c.Context(), RailID(c.Query("rail")), page)
}

type discountBody struct {
	Rail RailID `json:"rail"`
	DiscountTerms
}

func (p *Payments) postDiscount(c *capability.Call, b discountBody) (Discount, error) {
	return p.CreateDiscount(c.Context(), b.Rail, b.DiscountTerms)
}

// grantBody is a grant of an entitlement, or the repair of a purchase.
type grantBody struct {
	SubjectType   SubjectKind      `json:"subjectType"`
	SubjectID     string           `json:"subjectId"`
	Entitlement   string           `json:"entitlement,omitempty"`
	ExpiresAt     *capability.Time `json:"expiresAt,omitempty"`
	Reason        string           `json:"reason"`
	Rail          RailID           `json:"rail,omitempty"`
	TransactionID string           `json:"transactionId,omitempty"`
}

// granting is the result of a grant or a repair.
type granting struct {
	Grant    *Grant    `json:"grant,omitempty"`
	Purchase *Purchase `json:"purchase,omitempty"`
	Entitlements
}

func (p *Payments) postGrant(c *capability.Call, b grantBody) (out granting, err error) {
	subject, repairs := Subject{b.SubjectType, b.SubjectID}, b.Rail != "" || b.TransactionID != ""
	switch {
	case (b.Entitlement != "") == repairs:
		return out, capability.ErrInvalidRequest.Saying("Give entitlement, or rail and transactionId.")
	case repairs && b.ExpiresAt != nil:
		return out, capability.ErrInvalidRequest.Saying("A purchase says itself until when it grants.")
	case repairs:
		purchase, err := p.Repair(c.Context(), RepairRequest{b.Rail, b.TransactionID, subject, b.Reason})
		if err != nil {
			return out, err
		}
		out.Purchase = &purchase
	default:
		g := GrantRequest{Subject: subject, Entitlement: b.Entitlement, Reason: b.Reason}
		if b.ExpiresAt != nil {
			g.ExpiresAt = b.ExpiresAt.Time
		}
		grant, err := p.Grant(c.Context(), g)
		if err != nil {
			return out, err
		}
		out.Grant = &grant
	}
	out.Entitlements, err = p.Entitlements(c.Context(), subject)
	return out, err
}

type revokeBody struct {
	SubjectType SubjectKind `json:"subjectType"`
	SubjectID   string      `json:"subjectId"`
	Entitlement string      `json:"entitlement,omitempty"`
	GrantID     string      `json:"grantId,omitempty"`
	PurchaseID  string      `json:"purchaseId,omitempty"`
	Reason      string      `json:"reason"`
}

func (p *Payments) postRevoke(c *capability.Call, b revokeBody) (Entitlements, error) {
	return p.Revoke(c.Context(), RevokeRequest{Subject{b.SubjectType, b.SubjectID}, b.Entitlement, b.GrantID, b.PurchaseID, b.Reason})
}
