package sandbox

import (
	"cmp"
	"net/http"
	"strconv"
	"time"
)

// supplierA speaks JSON in the manner of mf178 and Xinya: POST /api/order/submit,
// /api/order/query and /api/balance, form or JSON, with appId, timestamp (Unix
// seconds) and sign.
type supplierA struct{ *desk }

// StartSupplierA starts it; its window is 4 minutes.
func StartSupplierA(s Supplier) (*Server, error) {
	return start(s.Options, func(o Options) platform {
		s.Hidden = cmp.Or(s.Hidden, time.Minute)
		o.Window = cmp.Or(o.Window, 4*time.Minute)
		return supplierA{newDesk(s, o, "supplier-a")}
	})
}

func (a supplierA) read(c *call) {
	if c.bad == nil {
		c.bad = c.params.addBody(c)
	}
	c.operation, c.order, c.shop = c.r.URL.Path, c.params["outOrderId"], a.App
}

func (a supplierA) answer(c *call) reply {
	do := map[string]func(*call) reply{
		"/api/order/submit": a.place,
		"/api/order/query":  a.look,
		"/api/balance":      a.money,
	}[c.operation]
	switch {
	case do == nil:
		return reply{http.StatusNotFound, "text/plain", []byte("not found\n"), ""}
	case a.isBanned(c):
		return a.say(10004, "IP已被限制", nil)
	case c.bad != nil || c.r.Method != http.MethodPost:
		return a.say(10001, "参数错误", nil)
	case c.params["appId"] != a.App:
		return a.say(10002, "appId错误", nil)
	case c.params["sign"] != c.params.joined(a.Secret):
		return a.refuse(c, Signature)
	case !within(c.params["timestamp"], c.now, a.Window):
		return a.refuse(c, Clock)
	}
	if k := a.limited(c); k != None {
		return a.refuse(c, k)
	}
	return do(c)
}

// refuse: documented are 10010, 10011, 10013 to 10016; the rest stand for what
// documents call "other codes".
func (a supplierA) refuse(c *call, k Kind) reply {
	a.gate.close(c, k)
	switch k {
	case Throttle:
		return a.say(10016, "请求过快", nil)
	case Quota:
		return a.say(7001, "当日次数已用完", nil)
	case Token:
		return a.say(10002, "appId未授权", nil)
	case Maintenance:
		return a.say(10013, "系统维护，请稍后提交", nil)
	case Signature:
		return a.say(10003, "签名错误", nil)
	case Clock:
		return a.say(10003, "timestamp已过期", nil)
	case Duplicate:
		return a.say(10010, "第三方订单号已存在", nil)
	case SystemError:
		return a.say(-99, "系统异常", nil)
	default:
		return a.say(10777, "未知", nil)
	}
}

func (a supplierA) say(code int, message string, more map[string]any) reply {
	out := map[string]any{"code": code, "msg": message}
	for k, v := range more {
		out[k] = v
	}
	return answerJSON(strconv.Itoa(code), out)
}

func (a supplierA) place(c *call) reply {
	if most, err := strconv.Atoi(c.params["amount"]); err != nil || a.Prices[c.params["productId"]] > most {
		return a.say(10012, "商品价格已变化", nil) // amount is the most that the buyer pays, in fen
	}
	j, o := a.submit(c, c.params["productId"], c.params["account"])
	return a.tell(c, j, o)
}

func (a supplierA) look(c *call) reply {
	j, o := a.query(c)
	return a.tell(c, j, o)
}

func (a supplierA) tell(c *call, j job, o outcome) reply {
	switch o {
	case exists:
		return a.refuse(c, Duplicate)
	case noBalance:
		return a.say(10011, "余额不足", nil)
	case noProduct:
		return a.say(10012, "商品不存在", nil)
	case noAccount:
		return a.say(10014, "充值号码或订单号错误", nil)
	case notFound:
		return a.say(10015, "订单不存在", nil)
	case tooSoon:
		return a.refuse(c, Throttle)
	case tooMany:
		return a.say(10004, "IP已被限制", nil)
	case tooFull:
		return a.refuse(c, Maintenance)
	default:
		status := map[string]int{"waiting": 0, "processing": 1, "success": 2, "failed": 3}[j.stage(c.now)]
		return a.say(0, "ok", map[string]any{"orderId": j.id, "outOrderId": j.number, "orderStatus": status})
	}
}

func (a supplierA) money(c *call) reply {
	return a.say(0, "ok", map[string]any{"balance": a.balance(c.now)})
}
