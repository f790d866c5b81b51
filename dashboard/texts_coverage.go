package dashboard

var textsCoverage = map[string]two{
	"coverage.lead":   {"Calls since %s: %s; opaque tunnels, where only the connection is retried: %s; without a shop: %s; without a task type: %s.", "自 %s 起的调用：%s；不透明隧道（只重试建立连接）：%s；没有店铺标签：%s；没有任务类型：%s。"},
	"coverage.client": {"Client", "客户端"}, "coverage.mode": {"Way", "方式"}, "coverage.tunnels": {"Opaque tunnels", "不透明隧道"}, "coverage.missing": {"Missing labels", "缺少标签"},
	"coverage.own": {"Retries of its own", "自行重试"}, "coverage.patience": {"Hangs up after", "多久挂断"}, "coverage.mend": {"What mends it", "改进办法"},
	"coverage.no":   {"No client was seen yet. Set HTTP_PROXY of a bot to this proxy.", "还没有客户端。请把机器人的 HTTP_PROXY 设为本代理。"},
	"coverage.well": {"nothing to mend", "无需改进"},
	"mode.forward":  {"proxy", "代理"}, "mode.opaque": {"opaque tunnel", "不透明隧道"}, "mode.intercept": {"opened tunnel", "已解开的隧道"}, "mode.reverse": {"route", "路由"},
	"into.run": {"run", "执行"}, "into.config": {"into the configuration", "写入配置"}, "into.bash": {"in the shell of the bot (bash)", "机器人的命令行（bash）"}, "into.PowerShell": {"in the shell of the bot (PowerShell)", "机器人的命令行（PowerShell）"},
	"into.python": {"in Python", "Python 中"}, "into.javascript": {"in JavaScript", "JavaScript 中"},

	"finding.traffic.tunnels":           {"opaque tunnels", "调用走不透明隧道：只能重试建立连接。改用 http:// 地址由本代理加密，或用本代理的 CA 解开隧道。"},
	"finding.traffic.labels":            {"no labels", "多数调用没有店铺或任务类型：全部共用一个额度和一条策略，一个坏店铺会用完大家的重试。"},
	"finding.traffic.doubled_posts":     {"POSTs sent twice", "它在“可能已执行”的答复之后又发了同样的 POST：没有键，平台可能执行了两次。带上键，重发只会得到第一次的结果。"},
	"finding.traffic.own_retries":       {"retries of its own", "它自己也在重试，与本代理的重试相乘。请在客户端关闭重试，或带键发送 X-Retry-Count。"},
	"finding.traffic.count_without_key": {"count without key", "它发送 X-Retry-Count 却没有键：无法区分它的重发与新的调用。"},
	"finding.traffic.not_repeated":      {"POSTs not repeated", "一些 POST 没有重试：结果未知，又没有键。"},
}
