package dashboard

import "time"

type auditView struct {
	Entries []struct {
		At     time.Time `json:"at"`
		Name   string    `json:"name"`
		Role   string    `json:"role"`
		Client string    `json:"client"`
		Action string    `json:"action"`
		Target string    `json:"target"`
		Note   string    `json:"note"`
		Result string    `json:"result"`
	} `json:"entries"`
	Next string `json:"next"`
}

func fillAudit(v *visit) (any, error) {
	var out auditView
	err := v.get("/api/v1/audit?"+query([]any{"limit", 100, "after", v.r.URL.Query().Get("after")}), &out)
	return out, err
}
