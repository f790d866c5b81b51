package sandbox

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// PDD is Pinduoduo's gateway: POST /api/router, form or JSON. It answers 200,
// whatever happened.
type PDD struct {
	Options
	Tokens map[string]string // access tokens by shop
	Orders []Sale
}

// pdd is its state.
type pdd struct {
	PDD
	*gate
	sales    map[string]Sale
	notified map[string]string // order: the status it was given
	waybills int
}

// StartPDD starts it; its window is 10 minutes, its rate 100/s for a shop.
func StartPDD(p PDD) (*Server, error) {
	return start(p.Options, func(o Options) platform {
		p.Options = o
		p.Window = cmp.Or(p.Window, 10*time.Minute)
		sales := map[string]Sale{}
		for _, s := range p.Orders {
			sales[s.Number] = s
		}
		return &pdd{PDD: p, gate: newGate(o, maps.Clone(p.Tokens), 100), sales: sales, notified: map[string]string{}}
	})
}

func (p *pdd) name() string { return "pdd" }

func (p *pdd) read(c *call) {
	if c.bad == nil {
		c.bad = c.params.addForm(c.r.URL.RawQuery)
	}
	if c.bad == nil {
		c.bad = c.params.addBody(c)
	}
	c.operation, c.order, c.shop = c.params["type"], c.params["order_sn"], p.shop(c.params["access_token"])
}

// addBody takes in a form, or JSON where the client says so.
func (p params) addBody(c *call) error {
	if strings.HasPrefix(c.r.Header.Get("Content-Type"), "application/json") {
		return p.addJSON(c.body)
	}
	return p.addForm(string(c.body))
}

// operations are what it can do. The name of the answer is not to be guessed from
// that of the operation.
var pddOperations = map[string]func(*pdd, *call) reply{
	"pdd.virtual.mobile.charge.notify": (*pdd).notify,
	"pdd.order.list.get":               (*pdd).list,
	"pdd.order.information.get":        (*pdd).information,
	"pdd.waybill.get":                  (*pdd).waybill,
}

func (p *pdd) answer(c *call) reply {
	do := pddOperations[c.operation]
	switch {
	case errors.Is(c.bad, errTooLarge):
		return p.fail(c, 52004, "请求body太大", "")
	case c.bad != nil || c.r.Method != http.MethodPost || c.r.URL.Path != "/api/router":
		return p.fail(c, 10000, "参数错误", "")
	case do == nil:
		return p.fail(c, 10001, "公共参数错误:type", "")
	case c.params["client_id"] != p.App:
		return p.fail(c, 10001, "公共参数错误:client_id", "")
	case !within(c.params["timestamp"], c.now, p.Window):
		return p.refuse(c, Clock)
	case c.params["sign"] != c.params.wrapped(p.Secret):
		return p.refuse(c, Signature)
	}
	if k := p.check(c, c.shop); k != None {
		return p.refuse(c, k)
	}
	if p.Books.full() {
		return p.refuse(c, Maintenance)
	}
	return do(p, c)
}

// refuse: the code of a day's quota and the words for the clock were not found in
// a document; the rest are documented.
func (p *pdd) refuse(c *call, k Kind) reply {
	p.close(c, k)
	switch k {
	case Throttle:
		return p.fail(c, 52101, "当前接口被限流，请稍后重试", "")
	case Quota:
		return p.fail(c, 70036, "应用调用次数超过当日限额", "")
	case Token:
		return p.fail(c, 10019, "access_token已过期", "10019")
	case Maintenance:
		return p.fail(c, 70033, "接口维护中", "")
	case Signature:
		return p.fail(c, 20004, "签名sign校验失败", "")
	case Clock:
		return p.fail(c, 10001, "公共参数错误:timestamp", "")
	case Duplicate:
		return p.fail(c, 50001, "业务服务错误", "50001", "订单状态不允许重复通知")
	case SystemError:
		return p.fail(c, 52001, "网关业务服务错误", "")
	default:
		return p.fail(c, 59999, "未知错误", "")
	}
}

// fail is the envelope of errors. sub_code is null, text or absent in reality too.
func (p *pdd) fail(c *call, code int, message, sub string, subMessage ...string) reply {
	e := map[string]any{"error_code": code, "error_msg": message, "sub_msg": strings.Join(append(subMessage, ""), ""), "sub_code": nil, "request_id": p.id(c)}
	if sub != "" {
		e["sub_code"] = sub
	}
	return answerJSON(strconv.Itoa(code), map[string]any{"error_response": e})
}

func (p *pdd) ok(c *call, name string, content map[string]any) reply {
	content["request_id"] = p.id(c)
	return answerJSON("ok", map[string]any{name: content})
}

func (p *pdd) id(c *call) string { return fmt.Sprintf("pdd%09d", c.number) }

// answerJSON is an answer with status 200.
func answerJSON(code string, v any) reply {
	body, err := json.Marshal(v)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return reply{http.StatusOK, "application/json;charset=UTF-8", body, code}
}

// sale is the order that the request is about, if the shop has it.
func (p *pdd) sale(c *call) (Sale, bool) {
	s, ok := p.sales[c.order]
	return s, ok && s.Shop == c.shop
}

func (p *pdd) missing(c *call) reply {
	return p.fail(c, 50001, "业务服务错误", "50001", "订单不存在")
}

// happen books an effect of this request.
func (c *call) happen(b *Books, platform string, e Effect) {
	c.effects = append(c.effects, e)
	b.happen(Event{c.now, e, platform, c.order})
}

// notify marks an order as delivered, or as failed. It does so once.
func (p *pdd) notify(c *call) reply {
	effect, known := map[string]Effect{"SUCCESS": Notified, "FAIL": Closed}[c.params["status"]]
	_, there := p.sale(c)
	switch {
	case !there:
		return p.missing(c)
	case !known || c.params["outer_order_sn"] == "":
		return p.fail(c, 50001, "业务服务错误", "50001", "outer_order_sn或status错误")
	case p.notified[c.order] != "":
		c.happen(p.Books, p.name(), Refused)
		return p.refuse(c, Duplicate)
	}
	p.notified[c.order] = c.params["status"]
	c.happen(p.Books, p.name(), effect)
	return p.ok(c, "mobile_charge_notify_response", map[string]any{"success": true})
}

func (p *pdd) list(c *call) reply {
	mine := of(c.shop, p.Orders)
	orders := []map[string]any{}
	for _, s := range page(mine, c.params["page"], c.params["page_size"]) {
		orders = append(orders, p.view(s))
	}
	return p.ok(c, "order_list_get_response", map[string]any{"order_list": orders, "total_count": len(mine)})
}

func (p *pdd) information(c *call) reply {
	s, there := p.sale(c)
	if !there {
		return p.missing(c)
	}
	return p.ok(c, "order_info_get_response", map[string]any{"order_info": p.view(s)})
}

// view: order_status is 1 to be delivered, 2 delivered, 5 failed.
func (p *pdd) view(s Sale) map[string]any {
	status := map[string]int{"": 1, "SUCCESS": 2, "FAIL": 5}[p.notified[s.Number]]
	return map[string]any{"order_sn": s.Number, "order_status": status, "goods_name": s.Product, "mobile": s.Account, "pay_amount": s.Amount}
}

// waybill allocates a number each time it is asked: a read by its name only.
func (p *pdd) waybill(c *call) reply {
	if _, there := p.sale(c); !there {
		return p.missing(c)
	}
	p.waybills++
	c.happen(p.Books, p.name(), Waybill)
	return p.ok(c, "pdd_waybill_get_response", map[string]any{
		"modules": []any{map[string]any{"object_id": c.order, "waybill_code": fmt.Sprintf("WB%08d", p.waybills)}},
	})
}
