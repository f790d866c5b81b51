package admin

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestObserved(t *testing.T) {
	d := (&fake{}).deps()
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://127.0.0.1/api/v1/observed", nil)
		New(d).ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != 404 {
		t.Errorf("without anybody who counts = %d, want 404", w.Code)
	}
	d.Observed = func() any { return map[string]int{"calls": 3} }
	if w := ask(); w.Code != 200 || strings.Join(strings.Fields(w.Body.String()), "") != `{"calls":3}` {
		t.Errorf("observed = %d %s", w.Code, w.Body)
	}
	d.Accounts = func() []Account { return []Account{{"admin", Admin, "hush"}} }
	if w := ask(); w.Code != 401 {
		t.Errorf("without the token = %d, want 401", w.Code)
	}
}
