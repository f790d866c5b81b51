package dashboard

var textsPolicies = map[string]two{
	"config.title": {"Configuration", "配置"}, "config.ok": {"The configuration holds.", "配置有效。"}, "config.refused": {"Refused at %s; the old one stays in force:", "%s 被拒绝，旧配置继续有效："}, "config.reload": {"Read it again", "重新加载"},
	"retries.title": {"Retries", "重试"}, "retries.on": {"on", "开启"}, "retries.off": {"off: waiting calls end now, none is repeated", "关闭：等待中的调用立即结束，不再重试"}, "retries.observe": {"observe: it is only noted what would be repeated", "观察：只记录本该重试的"},
	"retries.turn": {"Turn the switch", "切换"}, "retries.for": {"for (empty: for good)", "时长（空：一直）"},
	"policies.rules": {"Rules in force", "生效的规则"}, "policies.first": {"The first that matches counts.", "以第一条匹配的为准。"}, "policies.match": {"For", "适用于"}, "policies.delays": {"Waits before each retry", "各次重试前的等待"},
	"policies.safe": {"Safe", "可重复"}, "policies.preset": {"Preset", "预设"}, "policies.curves": {"Wait before retry n, by policy", "各策略第 n 次重试前的等待"},
	"policies.report": {"How they do", "效果"}, "policies.report_lead": {"Intervals are those of 95 %: what chance alone may make of it.", "区间为 95 %：仅凭偶然也可能有的波动。"},
	"policies.healed": {"Succeeded on attempt", "在第几次尝试成功"}, "policies.added": {"Added time", "增加的时间"}, "policies.against": {"Against the first variant", "与第一个变体比较"},
	"explain.title": {"What would become of a call", "一个调用会怎样"}, "explain.method": {"Method", "方法"}, "explain.headers": {"Headers, one a line", "请求头，每行一个"}, "explain.body": {"Body", "请求体"}, "explain.go": {"Explain", "解释"},
	"explain.labels": {"Labels", "标签"}, "explain.outcomes": {"What each failure would lead to", "各种失败的后果"}, "explain.outcome": {"If", "如果"}, "explain.next": {"then", "那么"}, "explain.end": {"if it never gets better", "如果一直不好"}, "explain.attempts": {"%d attempts, %s", "尝试 %d 次，%s"},
	"next.deliver": {"handed on", "转交答复"}, "next.retry": {"retried", "重试"}, "next.stop": {"given up", "放弃"}, "next.park": {"parked", "寄存"},
	"verdict.title": {"What an answer means", "一条答复意味着什么"}, "verdict.lead": {"Paste what a platform answered; nothing is sent.", "粘贴平台的答复；不会发送任何请求。"}, "verdict.platform": {"Preset", "预设"}, "verdict.body": {"Body of the answer", "答复内容"}, "verdict.go": {"Judge", "判断"},
	"verdict.says": {"It says", "含义"}, "verdict.rule": {"rule", "规则"}, "verdict.class": {"Verdict", "判定"}, "verdict.status": {"status: want a number", "状态码：应为数字"},
}
