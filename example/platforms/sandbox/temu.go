package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// TEMU is TEMU's gateway: POST /openapi/router, JSON. It answers 200, whatever
// happened.
type TEMU struct {
	Options
	Tokens map[string]string // access tokens by shop
	Orders []Sale
	Stock  map[int64]int // by skuId
}

// temu is its state.
type temu struct {
	TEMU
	*gate
	stock map[int64]int
	done  map[string]reply // edits of stock by shop and requestUniqueKey
}

// StartTEMU starts it; its window is 300 seconds, its rate 20/s for the app.
func StartTEMU(t TEMU) (*Server, error) {
	return start(t.Options, func(o Options) platform {
		t.Options = o
		t.Window = cmp.Or(t.Window, 300*time.Second)
		return &temu{TEMU: t, gate: newGate(o, maps.Clone(t.Tokens), 20), stock: maps.Clone(t.Stock), done: map[string]reply{}}
	})
}

func (t *temu) name() string { return "temu" }

func (t *temu) read(c *call) {
	if c.bad == nil {
		c.bad = c.params.addJSON(c.body)
	}
	c.operation, c.shop = c.params["type"], t.shop(c.params["access_token"])
	c.order = cmp.Or(c.params["requestUniqueKey"], c.params["parentOrderSn"])
}

var temuOperations = map[string]func(*temu, *call) reply{
	"bg.local.goods.stock.edit": (*temu).editStock,
	"bg.order.list.get":         (*temu).list,
}

// answer checks in the order of the documented codes.
func (t *temu) answer(c *call) reply {
	if refused, yes := t.malformed(c); yes {
		return refused
	}
	before, ok := off(c.params["timestamp"], c.now)
	switch {
	case !ok || before < -t.Window:
		return t.fail(c, 3000011, "timestamp is invalid.")
	case before > t.Window:
		return t.refuse(c, Clock)
	case c.params["sign"] != c.params.wrapped(t.Secret):
		return t.refuse(c, Signature)
	case c.shop == "":
		return t.fail(c, 3000031, "access_token not exists.")
	}
	if k := t.check(c, t.App); k != None {
		return t.refuse(c, k)
	}
	if t.Books.full() {
		return t.refuse(c, Maintenance)
	}
	return temuOperations[c.operation](t, c)
}

// malformed finds what is missing or unknown.
func (t *temu) malformed(c *call) (reply, bool) {
	json := strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/json")
	for _, fault := range []struct {
		is      bool
		code    int
		message string
	}{
		{c.bad != nil || !json || c.r.Method != http.MethodPost || c.r.URL.Path != "/openapi/router", 3000000, "BAD_PARAMS"},
		{c.params["type"] == "", 3000002, "there is no type in body."},
		{temuOperations[c.operation] == nil, 3000003, "type not exists"},
		{c.params["timestamp"] == "", 3000010, "there is no timestamp in body."},
		{c.params["data_type"] == "", 3000013, "there is no data_type in body."},
		{!strings.EqualFold(c.params["data_type"], "JSON"), 3000014, "data_type is invalid"},
		{c.params["app_key"] == "", 3000025, "there is no app_key in body."},
		{c.params["app_key"] != t.App, 3000026, "app_key not exists."},
		{c.params["access_token"] == "", 3000030, "there is no access_token in body."},
		{c.params["sign"] == "", 3000040, "there is no sign in body."},
	} {
		if fault.is {
			return t.fail(c, fault.code, fault.message), true
		}
	}
	return reply{}, false
}

// refuse: quota and maintenance have no codes of their own in the documents.
func (t *temu) refuse(c *call, k Kind) reply {
	t.close(c, k)
	switch k {
	case Throttle, Quota:
		return t.fail(c, 4000004, "RATE_LIMIT_EXCEED_EXCEPTION")
	case Token:
		return t.fail(c, 3000034, "access_token is expired or have been refreshed, please contact seller to share the new access_token with you.")
	case Maintenance:
		return t.fail(c, 7000000, "BUSINESS_SERVICE_ERROR")
	case Signature:
		return t.fail(c, 3000001, "SIGN_UNVALID")
	case Clock:
		return t.fail(c, 3000012, "timestamp is expired.")
	case SystemError:
		return t.fail(c, 4000000, "SYSTEM_EXCEPTION")
	case Duplicate:
		return t.fail(c, 2000000, "BUSINESS_EXCEPTION")
	default:
		return t.fail(c, 9990001, "UNHEARD_OF")
	}
}

func (t *temu) fail(c *call, code int, message string) reply {
	return answerJSON(strconv.Itoa(code), map[string]any{"success": false, "requestId": t.id(c), "errorCode": code, "errorMsg": message})
}

func (t *temu) ok(c *call, result any) reply {
	return answerJSON("ok", map[string]any{"success": true, "requestId": t.id(c), "errorCode": 1000000, "errorMsg": "", "result": result})
}

func (t *temu) id(c *call) string { return fmt.Sprintf("us-sandbox-%09d", c.number) }

// change is one entry of skuStockTargetList or skuStockChangeList.
type change struct {
	SKU    int64 `json:"skuId"`
	Target *int  `json:"stockTarget"`
	Diff   *int  `json:"stockDiff"`
}

// editStock sets or changes stocks. One requestUniqueKey has one effect; without
// one every request has.
func (t *temu) editStock(c *call) reply {
	key := c.shop + "\n" + c.params["requestUniqueKey"]
	if first, there := t.done[key]; there {
		c.happen(t.Books, t.name(), Refused)
		return first
	}
	changes, ok := t.changes(c)
	if !ok {
		return t.fail(c, 3000000, "BAD_PARAMS")
	}
	for _, x := range changes {
		if x.Target != nil {
			t.stock[x.SKU] = *x.Target
		} else {
			t.stock[x.SKU] += *x.Diff
		}
	}
	c.happen(t.Books, t.name(), Stock)
	answer := t.ok(c, map[string]any{"operateResult": true})
	if c.params["requestUniqueKey"] != "" {
		t.done[key] = answer
	}
	return answer
}

// changes are all that is asked for, if it can be done.
func (t *temu) changes(c *call) (out []change, ok bool) {
	for _, name := range []string{"skuStockTargetList", "skuStockChangeList"} {
		var list []change
		if text := c.params[name]; text != "" && json.Unmarshal([]byte(text), &list) != nil {
			return nil, false
		}
		for _, x := range list {
			_, known := t.stock[x.SKU]
			if !known || (name == "skuStockTargetList") != (x.Target != nil) || (x.Target == nil) == (x.Diff == nil) {
				return nil, false
			}
		}
		out = append(out, list...)
	}
	return out, len(out) > 0
}

func (t *temu) list(c *call) reply {
	mine := of(c.shop, t.Orders)
	orders := []map[string]any{}
	for _, s := range page(mine, c.params["pageNumber"], c.params["pageSize"]) {
		orders = append(orders, map[string]any{"parentOrderMap": map[string]any{"parentOrderSn": s.Number}})
	}
	return t.ok(c, map[string]any{"totalItemNum": len(mine), "pageItems": orders})
}
