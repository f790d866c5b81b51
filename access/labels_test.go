package access

import (
	"errors"
	"strings"
	"testing"

	"retryproxy/attempt"
)

func TestUserLabelsOfNames(t *testing.T) {
	for _, c := range []struct {
		name string
		want attempt.Labels
		ok   bool
	}{
		{"shop=17;task=order_ship;tier=vip", attempt.Labels{Shop: "17", ShopTier: "vip", TaskType: "order_ship"}, true},
		{"task_type=report;shop_tier=normal", attempt.Labels{ShopTier: "normal", TaskType: "report"}, true},
		{"Shop=17;TASK=report", attempt.Labels{Shop: "17", TaskType: "report"}, true},
		{"shop%3D17%3Btask%3Dreport", attempt.Labels{Shop: "17", TaskType: "report"}, true},
		{"shop=17%", attempt.Labels{Shop: "17%"}, true},
		{"bot%zz", attempt.Labels{}, false},
		{" shop = 17 ; ", attempt.Labels{Shop: "17"}, true},
		{"bot1;shop=17", attempt.Labels{Shop: "17"}, true},
		{"shop=a=b", attempt.Labels{}, false},
		{"shop=17,task=x", attempt.Labels{}, false},
		{"shop=17,18;tier=vip", attempt.Labels{ShopTier: "vip"}, true},
		{"shop=1;shop=2", attempt.Labels{Shop: "2"}, true},
		{"bot1", attempt.Labels{}, false},
		{"shop", attempt.Labels{}, false},
		{"shop=", attempt.Labels{}, false},
		{"session=9", attempt.Labels{}, false},
		{"", attempt.Labels{}, false},
		{";;=;", attempt.Labels{}, false},
	} {
		got, _ := UserLabels(c.name)
		ok := got != attempt.Labels{}
		if got != c.want || ok != c.ok {
			t.Errorf("UserLabels(%q) = %+v, %v, want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestUserLabelsCountsMistakes(t *testing.T) {
	for _, c := range []struct {
		name string
		want int
	}{
		{"shop=17;task=x", 0},
		{"bot1", 0},
		{"bot1;shop=17;", 0},
		{"", 0},
		{"shop=17,task=x", 1},
		{"shop=17 task=x", 1},
		{"shop=1=2;tier=a,b;task=x", 2},
		{"shoop=17", 1},
		{"shop=", 1},
	} {
		if labels, got := UserLabels(c.name); got != c.want {
			t.Errorf("UserLabels(%q) = %+v with %d mistakes, want %d", c.name, labels, got, c.want)
		}
	}
}

func TestMistakesInUserNamesAreTold(t *testing.T) {
	told := 0
	users := []User{{Name: "bot", Hash: quick(t, "pw")}}
	for _, c := range []struct {
		users    []User
		userinfo string
		want     int
	}{
		{nil, "shop=17,task=x:y", 1},
		{nil, "shop=17;task=x:y", 0},
		{users, "bot;shop=17,task=x:pw", 1},
		{users, "bot;shop=17:pw", 0},
		{users, "bot;shop=17,task=x:wrong", 0},
	} {
		told = 0
		clients := newClients(t, ClientsConfig{Users: c.users, Mislabelled: func() { told++ }})
		_, _, _ = clients.Authenticate(basic(c.userinfo))
		if told != c.want {
			t.Errorf("%q was told %d times, want %d", c.userinfo, told, c.want)
		}
	}
}

func TestMergeLabels(t *testing.T) {
	shop := func(s string) attempt.Labels { return attempt.Labels{Shop: s} }
	for _, c := range []struct {
		name                         string
		user, listener, word, header attempt.Labels
		want                         attempt.Labels
		err                          error
	}{
		{"none", shop(""), shop(""), shop(""), shop(""), shop(""), nil},
		{"header alone", shop(""), shop(""), shop(""), shop("h"), shop("h"), nil},
		{"user name beats header", shop(""), shop(""), shop("n"), shop("h"), shop("n"), nil},
		{"listener, same in header", shop(""), shop("l"), shop(""), shop("l"), shop("l"), nil},
		{"listener, other in header", shop(""), shop("l"), shop(""), shop("h"), shop(""), ErrClient},
		{"user entry, other in user name", shop("u"), shop(""), shop("n"), shop(""), shop(""), ErrClient},
		{"user entry, other listener", shop("u"), shop("l"), shop(""), shop(""), shop(""), ErrClient},
		{"each from its own source", attempt.Labels{Shop: "u"}, attempt.Labels{ShopTier: "l"}, attempt.Labels{TaskType: "n"}, attempt.Labels{Shop: "u", TaskType: "h"}, attempt.Labels{Shop: "u", ShopTier: "l", TaskType: "n"}, nil},
		{"too long", shop(""), shop(""), shop(""), shop(strings.Repeat("x", 129)), shop(""), ErrBadLabel},
		{"longest", shop(""), shop(""), shop(""), shop(strings.Repeat("x", 128)), shop(strings.Repeat("x", 128)), nil},
		{"blank", shop(""), shop(""), shop(""), shop("a b"), shop(""), ErrBadLabel},
		{"control character", shop(""), shop(""), shop("a\x00"), shop(""), shop(""), ErrBadLabel},
		{"not UTF-8", shop(""), shop(""), shop(""), shop("\xff"), shop(""), ErrBadLabel},
		{"Chinese", shop(""), shop(""), shop(""), shop("店铺17"), shop("店铺17"), nil},
		{"bad though not chosen", shop(""), shop(""), shop("n"), shop("a\tb"), shop(""), ErrBadLabel},
	} {
		got, err := MergeLabels(c.user, c.listener, c.word, c.header)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: MergeLabels = %+v, %v, want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

func TestMergeLabelsAllocatesNothing(t *testing.T) {
	user, header := attempt.Labels{Shop: "17"}, attempt.Labels{Shop: "17", TaskType: "order_ship"}
	if n := testing.AllocsPerRun(100, func() { _, _ = MergeLabels(user, attempt.Labels{}, attempt.Labels{}, header) }); n != 0 {
		t.Errorf("MergeLabels allocates %v times, want 0", n)
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("shop=17;task=order_ship;tier=vip")
	f.Add("bot1;shop==;task_type=\x00")
	f.Fuzz(func(t *testing.T, name string) {
		labels, _ := UserLabels(name)
		ok := labels != attempt.Labels{}
		if ok != (labels != attempt.Labels{}) {
			t.Errorf("UserLabels(%q) = %+v, %v", name, labels, ok)
		}
		merged, err := MergeLabels(attempt.Labels{}, attempt.Labels{}, labels, attempt.Labels{})
		if err == nil && merged != labels {
			t.Errorf("MergeLabels of %+v alone = %+v", labels, merged)
		}
		for _, v := range []string{merged.Shop, merged.ShopTier, merged.TaskType} {
			if len(v) > maxLabel || strings.ContainsAny(v, " \r\n\t\x00\x7f") {
				t.Errorf("label %q was accepted", v)
			}
		}
	})
}
