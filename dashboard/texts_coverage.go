package dashboard

var textsCoverage = map[string]two{
	"coverage.lead":   {"Calls since %s: %s; opaque tunnels, where only the connection is retried: %s; without a shop: %s; without a task type: %s.", "自 %s 起的调用：%s；不透明隧道（只重试建立连接）：%s；没有店铺标签：%s；没有任务类型：%s。"},
	"coverage.client": {"Client", "客户端"}, "coverage.mode": {"Way", "方式"}, "coverage.tunnels": {"Opaque tunnels", "不透明隧道"}, "coverage.missing": {"Missing labels", "缺少标签"},
	"coverage.own": {"Retries of its own", "自行重试"}, "coverage.patience": {"Hangs up after", "多久挂断"}, "coverage.mend": {"What mends it", "改进办法"},
	"coverage.all": {"For all clients", "对全部客户端"}, "coverage.no": {"No client was seen yet. Set HTTP_PROXY of a bot to this proxy.", "还没有客户端。请把机器人的 HTTP_PROXY 设为本代理。"},
	"coverage.well": {"nothing to mend", "无需改进"},
	"mode.forward":  {"proxy", "代理"}, "mode.connect": {"tunnel", "隧道"}, "mode.intercept": {"opened tunnel", "已解开的隧道"}, "mode.reverse": {"route", "路由"}, "mode.local": {"ours", "本机"},
}
