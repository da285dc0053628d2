package email

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/internal/sns"
)

// ses reads the reports of Amazon SES from one SNS topic.
type ses struct{ *sns.Topic }

// read returns the reports of a verified message.
func (s ses) read(ctx context.Context, body []byte) ([]Report, error) {
	text, ok, err := s.Read(ctx, body)
	if err != nil || !ok {
		return nil, err
	}
	return readSES([]byte(text))
}

// readSES parses an event or a feedback notification, which name their kind differently.
func readSES(body []byte) ([]Report, error) {
	type recipient struct{ EmailAddress, Status, DiagnosticCode string }
	var event struct {
		EventType, NotificationType string
		Mail                        struct{ MessageID string }
		Bounce                      struct {
			BounceType        string
			BouncedRecipients []recipient
		}
		Complaint struct {
			ComplainedRecipients []recipient
		}
		Delivery struct {
			Recipients []string
		}
		DeliveryDelay struct {
			DelayedRecipients []recipient
		}
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, err
	}
	var reports []Report
	each := func(kind ReportKind, about []recipient) {
		for _, r := range about {
			reports = append(reports, Report{
				Kind: kind, ProviderID: event.Mail.MessageID, Recipient: r.EmailAddress, Status: r.Status, Detail: r.DiagnosticCode,
			})
		}
	}
	switch event.EventType + event.NotificationType {
	case "Bounce":
		kind := ReportSoftBounce
		if event.Bounce.BounceType == "Permanent" {
			kind = ReportHardBounce
		}
		each(kind, event.Bounce.BouncedRecipients)
	case "Complaint":
		each(ReportComplaint, event.Complaint.ComplainedRecipients)
	case "DeliveryDelay":
		each(ReportDelayed, event.DeliveryDelay.DelayedRecipients)
	case "Delivery":
		for _, address := range event.Delivery.Recipients {
			reports = append(reports, Report{Kind: ReportDelivered, ProviderID: event.Mail.MessageID, Recipient: address})
		}
	}
	return reports, nil
}
