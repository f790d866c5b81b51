package sandbox

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// supplierB speaks XML in GB2312 in the manner of Dingyin: POST /onlinepay.do,
// /searchpay.do and /searchbalance.do, form, with userid and sign. The order of the
// signed values was not found, so it is ours.
type supplierB struct{ *desk }

// StartSupplierB starts it. It checks no clock.
func StartSupplierB(s Supplier) (*Server, error) {
	return start(s.Options, func(o Options) platform {
		s.Hidden = cmp.Or(s.Hidden, 10*time.Minute)
		return supplierB{newDesk(s, o, "supplier-b")}
	})
}

func (b supplierB) read(c *call) {
	if c.bad == nil {
		c.bad = c.params.addForm(string(c.body))
	}
	c.operation, c.order, c.shop = c.r.URL.Path, c.params["sporderid"], b.App
}

func (b supplierB) answer(c *call) reply {
	signed, known := map[string][]string{
		"/onlinepay.do":     {"userid", "productid", "num", "account", "spordertime", "sporderid"},
		"/searchpay.do":     {"userid", "sporderid"},
		"/searchbalance.do": {"userid"},
	}[c.operation]
	switch {
	case !known:
		return reply{http.StatusNotFound, "text/plain", []byte("not found\n"), ""}
	case b.isBanned(c):
		return b.say(c, "5010", "IP受限", job{})
	case c.bad != nil || c.r.Method != http.MethodPost:
		return b.say(c, "5001", "参数错误", job{})
	case c.params["userid"] != b.App:
		return b.say(c, "5002", "代理商不存在", job{})
	case c.params["sign"] != c.params.listed(b.Secret, signed...):
		return b.refuse(c, Signature)
	}
	if k := b.limited(c); k != None {
		return b.refuse(c, k)
	}
	return b.do(c)
}

func (b supplierB) do(c *call) reply {
	switch c.operation {
	case "/onlinepay.do":
		if _, err := time.ParseInLocation("20060102150405", c.params["spordertime"], beijing); err != nil || c.params["num"] != "1" {
			return b.say(c, "5001", "参数错误", job{})
		}
		j, o := b.submit(c, c.params["productid"], c.params["account"])
		return b.tell(c, j, o)
	case "/searchpay.do":
		j, o := b.query(c)
		return b.tell(c, j, o)
	default:
		return b.xml("1", answerXML{Result: "1", Balance: fmt.Sprintf("%.2f", float64(b.balance(c.now))/100)})
	}
}

// refuse: documented are 0, 1, 2, 9, 5006 and 9999; the other codes are ours.
func (b supplierB) refuse(c *call, k Kind) reply {
	b.gate.close(c, k)
	switch k {
	case Throttle:
		return b.say(c, "5008", "查询过于频繁", job{})
	case Quota:
		return b.say(c, "7001", "超过当日限额", job{})
	case Token:
		return b.say(c, "5002", "代理商未授权", job{})
	case Maintenance:
		return b.say(c, "5009", "系统维护", job{})
	case Signature:
		return b.say(c, "5005", "签名错误", job{})
	case Clock:
		return b.say(c, "5011", "订单时间错误", job{})
	case Duplicate:
		return b.say(c, "5006", "订单号重复", job{})
	case SystemError:
		return b.say(c, "9999", "未知错误", job{})
	default:
		return b.say(c, "8888", "其他", job{})
	}
}

func (b supplierB) tell(c *call, j job, o outcome) reply {
	switch o {
	case exists:
		return b.refuse(c, Duplicate)
	case noBalance:
		return b.say(c, "5004", "余额不足", job{})
	case noProduct:
		return b.say(c, "5003", "商品不存在", job{})
	case noAccount:
		return b.say(c, "5001", "参数错误", job{})
	case notFound:
		return b.say(c, "5007", "订单不存在", job{})
	case tooSoon:
		return b.refuse(c, Throttle)
	case tooMany:
		return b.say(c, "5010", "IP受限", job{})
	case tooFull:
		return b.refuse(c, Maintenance)
	default:
		code := map[string]string{"waiting": "0", "success": "1", "processing": "2", "failed": "9"}[j.stage(c.now)]
		return b.say(c, code, map[string]string{"0": "等待充值", "1": "充值成功", "2": "充值中", "9": "充值失败"}[code], j)
	}
}

// answerXML is the one document that it knows.
type answerXML struct {
	XMLName xml.Name `xml:"order"`
	ID      string   `xml:"orderid"`
	Number  string   `xml:"sporderid"`
	Result  string   `xml:"resultno"`
	Message string   `xml:"resultmsg,omitempty"`
	Balance string   `xml:"balance,omitempty"`
}

func (b supplierB) say(c *call, code, message string, j job) reply {
	return b.xml(code, answerXML{ID: j.id, Number: c.order, Result: code, Message: message})
}

func (b supplierB) xml(code string, a answerXML) reply {
	a.Number = strings.Map(ascii, a.Number)
	text, err := xml.Marshal(a)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return reply{http.StatusOK, "text/xml;charset=GB2312", chinese(`<?xml version="1.0" encoding="GB2312"?>` + string(text)), code}
}

// ascii drops what clients send in an unknown charset.
func ascii(r rune) rune {
	if r > '~' {
		return -1
	}
	return r
}
