package testers

import "github.com/kitbackend/kit/capability"

// DefaultCohort is the cohort used if none is named; the first invitation creates it.
const DefaultCohort = "default"

// State is the state of a member on the roster.
type State string

// The states: invited; accepted, which is consent and not enrolment; opened the store's link;
// presumed to have left, or left; removed by staff; withdrawn permanently.
const (
	StateInvited   State = "invited"
	StateAccepted  State = "accepted"
	StateOptedIn   State = "opted_in"
	StateLapsed    State = "lapsed"
	StateRemoved   State = "removed"
	StateWithdrawn State = "withdrawn"
)

// onRoster reports whether a member in the state counts towards the size of the roster.
func (s State) onRoster() bool { return s != StateRemoved && s != StateWithdrawn }

// Presence is the activity of a member in the app, as far as known.
type Presence string

// The presences, of which the first that applies is used: mail is undeliverable; no account is
// linked; seen recently; linked but not seen recently.
const (
	PresenceUnreachable Presence = "unreachable"
	PresenceNeverLinked Presence = "never_linked"
	PresenceActive      Presence = "active"
	PresenceInactive    Presence = "inactive"
)

// MailKind is a mail to a tester: the invitation or one of the four nudges.
type MailKind string

// The kinds. [MailInvite] is not a nudge.
const (
	MailInvite   MailKind = "invite"
	MailConfirm  MailKind = "confirm"
	MailStore    MailKind = "store"
	MailInactive MailKind = "inactive"
	MailClosing  MailKind = "closing"
)

func (k MailKind) isNudge() bool {
	return k == MailConfirm || k == MailStore || k == MailInactive || k == MailClosing
}

// Status is whether a cohort is open.
type Status string

// The statuses.
const (
	StatusOpen   Status = "open"
	StatusClosed Status = "closed"
)

// Member is a member of a cohort, as staff sees it.
type Member struct {
	ID       string   `json:"id"`
	CohortID string   `json:"cohortId"`
	Email    string   `json:"email"`
	Name     string   `json:"name"`
	State    State    `json:"state"`
	Activity Presence `json:"activity"`
	// Health is 0 to 100; nil unless the member is opted in and linked.
	Health      *int    `json:"health"`
	LapseReason *string `json:"lapseReason"`
	UserID      *string `json:"userId"`
	// Dates are UTC days, such as "2026-11-21".
	OptedInOn   *string `json:"optedInOn"`
	LastSeenOn  *string `json:"lastSeenOn"`
	StreakDays  int     `json:"streakDays"`
	AppVersion  *string `json:"appVersion"`
	LastSession *string `json:"lastSession"`
	LastNudge   *Nudged `json:"lastNudge"`
	// FeedbackThreads is the number of support threads that the member wrote to;
	// [Testers.ListFeedback] lists them.
	FeedbackThreads int              `json:"feedbackThreads"`
	StateSince      capability.Time  `json:"stateSince"`
	ConsentAt       *capability.Time `json:"consentAt"`

	key, hash, lapse, user       string
	mailJob                      string
	consent, nudgeAt, stateAt    int64
	optedOn, total, seen, noMail int64
	generation                   int64
	nudgeKind                    MailKind
}

// Nudged is a reminder that was sent.
type Nudged struct {
	Kind MailKind        `json:"kind"`
	At   capability.Time `json:"at"`
}

// Membership is a membership as its tester sees it.
type Membership struct {
	CohortID   string   `json:"cohortId"`
	State      State    `json:"state"`
	Activity   Presence `json:"activity"`
	OptedInOn  *string  `json:"optedInOn"`
	StreakDays int      `json:"streakDays"`
	Window     Window   `json:"window"`
}

// Window is the progress of the cohort's window, in days.
type Window struct {
	Elapsed int `json:"elapsed"`
	Days    int `json:"days"`
}

// Memberships are the memberships of one user.
type Memberships struct {
	Memberships []Membership `json:"memberships"`
}

// Cohort is a group of testers, as staff sees it.
type Cohort struct {
	ID            string           `json:"id"`
	Name          string           `json:"name"`
	Status        Status           `json:"status"`
	TargetSize    int              `json:"targetSize"`
	WindowDays    int              `json:"windowDays"`
	MaxRosterSize int              `json:"maxRosterSize"`
	StoreURL      string           `json:"storeUrl"`
	Counts        map[State]int    `json:"counts"`
	Activity      map[Presence]int `json:"activity"`
	// Health is the mean over the members that have one.
	Health *int `json:"health"`
	// Members are included on request, at most [MaxShown] of them, those on the roster first.
	Members  []Member  `json:"members,omitzero"`
	Forecast *Estimate `json:"forecast,omitempty"`

	elapsed, started, resets, lastReset, lastDay int64
	lastPass, nudgeDay, nudges, created          int64
}

// MaxShown is the maximum number of members that are returned with a cohort.
const MaxShown = 1000

// Estimate is the forecast of a cohort: estimates in Estimates, facts in Observed.
type Estimate struct {
	ModelVersion   string          `json:"modelVersion"`
	AsOf           capability.Time `json:"asOf"`
	Timezone       string          `json:"timezone"`
	DayBoundary    string          `json:"dayBoundary"`
	ResetPolicy    ResetPolicy     `json:"resetPolicy"`
	Calibration    Calibration     `json:"calibration"`
	Disclaimer     string          `json:"disclaimer"`
	Reconciliation Reconciliation  `json:"reconciliation"`
	Requirement    Requirement     `json:"requirement"`
	Observed       Observed        `json:"observed"`
	Estimates      Estimates       `json:"estimates"`
}

// Calibration describes the origin of the constants.
type Calibration struct {
	Status string `json:"status"`
	Basis  string `json:"basis"`
	Fitted bool   `json:"fitted"`
	Note   string `json:"note"`
}

// Reconciliation reports whether opt-ins can be verified with the store: they cannot.
type Reconciliation struct {
	Supported bool   `json:"supported"`
	Reason    string `json:"reason"`
}

// Requirement is the requirement of the store.
type Requirement struct {
	TargetSize int `json:"targetSize"`
	WindowDays int `json:"windowDays"`
}

// Observed are counts, not estimates.
type Observed struct {
	OptedIn           int     `json:"optedIn"`
	WithFullStreak    int     `json:"withFullStreak"`
	WindowDaysElapsed int     `json:"windowDaysElapsed"`
	WindowStartedOn   *string `json:"windowStartedOn"`
	Resets            int     `json:"resets"`
	LastResetOn       *string `json:"lastResetOn"`
	// Snapshots are the snapshots of the last 60 days, oldest first.
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is the result of a daily pass.
type Snapshot struct {
	Date    string `json:"date"`
	OptedIn int    `json:"optedIn"`

	day, streak, elapsed int64
	probability          float64
	version              string
}

// Estimates are the results of the model. SuccessProbability is the probability that enough testers
// have a full streak on the best day of the horizon; nil means unknown, with a reason, and 0 is a
// real value.
type Estimates struct {
	SuccessProbability       *float64 `json:"successProbability"`
	SuccessProbabilityReason *string  `json:"successProbabilityReason"`
	// CompletionDate is the first day with a probability of one half or more.
	CompletionDate           *string          `json:"completionDate"`
	BestDate                 *string          `json:"bestDate"`
	AdditionalTestersForGoal *int             `json:"additionalTestersForGoal"`
	GoalProbability          float64          `json:"goalProbability"`
	ExpectedOptedInAtBest    *float64         `json:"expectedOptedInAtBest"`
	Binding                  *string          `json:"binding"`
	Curve                    []CurvePoint     `json:"curve"`
	Members                  []MemberEstimate `json:"members"`
}

// CurvePoint is the probability on one day.
type CurvePoint struct {
	Date        string  `json:"date"`
	Probability float64 `json:"probability"`
}

// MemberEstimate is the probability that an opted-in member completes the streak, and by how much
// the success probability of the cohort would rise if the member were active.
type MemberEstimate struct {
	MemberID       string  `json:"memberId"`
	StreakSurvival float64 `json:"streakSurvival"`
	ImpactIfActive float64 `json:"impactIfActive"`
}

// Tester is a person to invite.
type Tester struct {
	Email string `json:"email"`
	Name  string `json:"name,omitempty"`
}

// InviteResult reports who was invited and who was refused.
type InviteResult struct {
	Invited []Member  `json:"invited"`
	Refused []Refused `json:"refused"`
}

// Refused is a tester who was not invited, with the code of the refusal.
type Refused struct {
	Email string `json:"email"`
	Code  string `json:"code"`
}

// Ref identifies a member of a cohort, by id or address.
type Ref struct {
	CohortID string `json:"cohortId,omitempty"`
	Email    string `json:"email,omitempty"`
	MemberID string `json:"memberId,omitempty"`
}

// NudgeRequest is a request for reminders of one kind.
type NudgeRequest struct {
	CohortID string   `json:"cohortId,omitempty"`
	Kind     MailKind `json:"kind"`
	// MemberIDs are at most 100 members; none means all to whom the kind applies.
	MemberIDs []string    `json:"memberIds,omitempty"`
	Copy      *CustomCopy `json:"copy,omitempty"`
}

// CustomCopy replaces the built-in text. {{name}}, {{cohort}} and {{link}} are substituted; the
// opt-out link is always appended.
type CustomCopy struct {
	Subject string `json:"subject"`
	Body    string `json:"body"`
}

// NudgeResult reports who was reminded and who was skipped.
type NudgeResult struct {
	Sent    []string  `json:"sent"`
	Skipped []Skipped `json:"skipped"`
}

// Skipped is a member who was not reminded, and why: cooldown, not_eligible,
// unreachable, withdrawn or daily_cap.
type Skipped struct {
	MemberID string `json:"memberId"`
	Reason   string `json:"reason"`
}

// Visit describes a use of the app; both fields are optional.
type Visit struct {
	AppVersion, SessionID string
}

// Choices lists the values, for documents.
func (State) Choices() []string {
	return []string{string(StateInvited), string(StateAccepted), string(StateOptedIn), string(StateLapsed), string(StateRemoved), string(StateWithdrawn)}
}

// Choices lists the values, for documents.
func (Status) Choices() []string { return []string{string(StatusOpen), string(StatusClosed)} }

// Choices lists the values, for documents.
func (Presence) Choices() []string {
	return []string{string(PresenceUnreachable), string(PresenceNeverLinked), string(PresenceActive), string(PresenceInactive)}
}
