package payments

import "github.com/kitbackend/kit/capability"

// The refusals of payments. A field that is missing, and an id, a reason or terms that break their
// bounds, are kit/invalid_request.
var (
	// ErrInvalidSignature refuses a webhook whose proof does not verify, for any reason.
	ErrInvalidSignature    = capability.NewError(401, "payments/invalid_signature", "The proof of this delivery does not verify.")
	ErrInvalidReceipt      = capability.NewError(422, "payments/invalid_receipt", "The store does not vouch for this purchase.")
	ErrEnvironmentMismatch = capability.NewError(422, "payments/environment_mismatch", "The purchase is of another store environment than this deployment. Test and review builds belong to a deployment outside of production.")
	ErrAppMismatch         = capability.NewError(422, "payments/app_mismatch", "The purchase is of another application.")
	ErrProductNotFound     = capability.NewError(404, "payments/product_not_found", "There is no such product.")
	ErrProductUnavailable  = capability.NewError(422, "payments/product_unavailable", "The product is not sold on this rail.")
	ErrCheckoutUnsupported = capability.NewError(422, "payments/checkout_unsupported", "This rail has no checkout.")
	ErrPortalUnsupported   = capability.NewError(422, "payments/portal_unsupported", "This rail has no portal.")
	ErrDiscountUnsupported = capability.NewError(422, "payments/discount_unsupported", "This rail takes no discounts from here.")
	ErrEntitlementUnknown  = capability.NewError(422, "payments/entitlement_not_declared", "The entitlement is not one of manualEntitlements.")
	ErrSubjectKind         = capability.NewError(404, "payments/subject_kind_mismatch", "Purchases belong to another kind of subject here.")
	ErrBillingDenied       = capability.NewError(403, "payments/billing_denied", "The caller may not manage the billing of this subject.")
	ErrRailNotEnabled      = capability.NewError(404, "payments/rail_not_enabled", "This rail is not on.")
	ErrRailNotConfigured   = capability.NewError(503, "payments/rail_not_configured", "This rail has no credentials yet.")
	ErrRailUnavailable     = capability.NewError(503, "payments/rail_unavailable", "The rail cannot be reached right now. Try again.")
	ErrPurchasePending     = capability.NewError(409, "payments/purchase_pending", "The purchase has not been paid yet.")
	ErrPurchaseClaimed     = capability.NewError(409, "payments/purchase_claimed", "The purchase belongs to somebody else.")
	ErrPurchaseNotFound    = capability.NewError(404, "payments/purchase_not_found", "There is no such purchase.")
	ErrCustomerNotFound    = capability.NewError(404, "payments/customer_not_found", "There is nothing to manage at this rail.")
	ErrAlreadySubscribed   = capability.NewError(409, "payments/already_subscribed", "There is a subscription to this product already.")
	ErrEntitlementNotFound = capability.NewError(404, "payments/entitlement_not_found", "The subject has no such entitlement.")
	ErrDiscountConflict    = capability.NewError(409, "payments/discount_conflict", "There is a discount of this code already.")
	ErrEntitlementRequired = capability.NewError(403, "payments/entitlement_required", "This needs an entitlement that the caller does not have.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrInvalidSignature, ErrInvalidReceipt, ErrEnvironmentMismatch, ErrAppMismatch, ErrProductNotFound,
		ErrProductUnavailable, ErrCheckoutUnsupported, ErrPortalUnsupported, ErrDiscountUnsupported,
		ErrEntitlementUnknown, ErrSubjectKind, ErrBillingDenied, ErrRailNotEnabled, ErrRailNotConfigured,
		ErrRailUnavailable, ErrPurchasePending, ErrPurchaseClaimed, ErrPurchaseNotFound, ErrCustomerNotFound,
		ErrAlreadySubscribed, ErrEntitlementNotFound, ErrDiscountConflict, ErrEntitlementRequired,
	}
}
