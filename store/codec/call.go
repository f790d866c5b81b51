package codec

import (
	"time"

	"retryproxy/attempt"
	"retryproxy/journal"
)

// Call is a call of the history as JSON.
type Call struct {
	ID       Text          `json:"call_id"`
	KeyHash  string        `json:"key_hash,omitempty"`
	Tenant   Text          `json:"tenant,omitempty"`
	Key      Text          `json:"key,omitempty"`
	Mode     string        `json:"mode,omitempty"`
	Policy   string        `json:"policy,omitempty"`
	User     Text          `json:"user,omitempty"`
	Client   Text          `json:"client,omitempty"`
	Shop     Text          `json:"shop,omitempty"`
	ShopTier Text          `json:"shop_tier,omitempty"`
	TaskType Text          `json:"task_type,omitempty"`
	Method   Text          `json:"method,omitempty"`
	Scheme   string        `json:"scheme,omitempty"`
	Host     Text          `json:"host,omitempty"`
	Path     Text          `json:"path,omitempty"`
	ClientID Text          `json:"client_id,omitempty"`
	Trace    Text          `json:"trace,omitempty"`
	Origin   string        `json:"origin,omitempty"`
	Result   string        `json:"result,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Detail   Text          `json:"detail,omitempty"`
	Status   int           `json:"status,omitempty"`
	Executed string        `json:"executed"`
	Attempts []Attempt     `json:"attempts,omitempty"`
	Previous int           `json:"previous,omitempty"`
	Started  time.Time     `json:"started,omitzero"`
	Ended    time.Time     `json:"ended,omitzero"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	Overhead time.Duration `json:"overhead_ns,omitempty"`
	Bytes    int64         `json:"bytes,omitempty"`
	Waits    []Wait        `json:"waits,omitempty"`
	Terms    []uint64      `json:"terms,omitempty"`
}

// CallOf makes JSON of a call, its texts cut as a journal keeps them.
func CallOf(c *attempt.Summary) *Call {
	return &Call{
		ID: Text(c.ID), KeyHash: c.KeyHash, Tenant: Text(c.Record.Tenant), Key: Text(c.Record.Key), Mode: c.Mode, Policy: c.Policy,
		User: Text(c.User), Client: Text(c.Client), Shop: Text(c.Labels.Shop), ShopTier: Text(c.Labels.ShopTier), TaskType: Text(c.Labels.TaskType),
		Method: Text(c.Method), Scheme: c.Scheme, Host: Text(c.Host), Path: Text(journal.Clip(c.Path)), ClientID: Text(journal.Clip(c.ClientID)), Trace: Text(journal.Clip(c.Trace)),
		Origin: c.Origin, Result: c.Result, Reason: c.Reason, Detail: Text(journal.Clip(c.Detail)), Status: c.Status, Executed: c.Executed.String(), Previous: c.Previous,
		Started: c.Started.UTC(), Ended: c.Ended.UTC(), Duration: c.Duration, Overhead: c.Overhead, Bytes: c.Bytes, Terms: c.Terms,
		Attempts: HistoryOf(c.Attempts), Waits: WaitsOf(c.Waits),
	}
}

// Summary is the way back from CallOf, of a call that is done. It fails for verdicts
// that nobody knows.
func (c *Call) Summary() (*attempt.Summary, error) {
	executed, err := Executed(c.Executed)
	if err != nil {
		return nil, err
	}
	attempts, err := History(c.Attempts)
	if err != nil {
		return nil, err
	}
	return &attempt.Summary{
		ID: string(c.ID), KeyHash: c.KeyHash, Record: attempt.RecordID{Tenant: string(c.Tenant), Key: string(c.Key)}, Mode: c.Mode, Policy: c.Policy,
		User: string(c.User), Client: string(c.Client), Labels: attempt.Labels{Shop: string(c.Shop), ShopTier: string(c.ShopTier), TaskType: string(c.TaskType)},
		Method: string(c.Method), Scheme: c.Scheme, Host: string(c.Host), Path: string(c.Path), ClientID: string(c.ClientID), Trace: string(c.Trace),
		State: "done", Origin: c.Origin, Result: c.Result, Reason: c.Reason, Detail: string(c.Detail), Status: c.Status, Executed: executed, Previous: c.Previous,
		Started: c.Started, Ended: c.Ended, Duration: c.Duration, Overhead: c.Overhead, Bytes: c.Bytes, Terms: c.Terms,
		Attempts: attempts, Waits: Waits(c.Waits),
	}, nil
}
