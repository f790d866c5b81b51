package dashboard

var textsNow = map[string]two{
	"now.waiting": {"Calls that waited at a time, by cause, last hour", "最近一小时同时等待的调用数（按原因）"},
	"now.picture": {"Calls to %s by minute, last hour", "最近一小时每分钟发往 %s 的调用"},
	"now.first":   {"success at once", "一次成功"}, "now.success": {"Success", "成功率"}, "now.hour": {"calls in the last hour", "个调用（最近一小时）"},
	"now.saved": {"Saved by retries", "重试救回"}, "now.amplification": {"Requests per call", "每个调用的请求数"}, "now.slots": {"In flight / slots", "进行中 / 名额"},
	"now.line": {"In line", "排队"}, "now.late": {"%d of them backlog", "其中积压 %d"}, "now.planned": {"%d for their own date", "另有 %d 个等待各自的时间"},
	"now.outage":  {"%d wait (at most %d at a time), %d gave up.", "%d 个在等待（最多时 %d 个），%d 个已放弃。"},
	"now.release": {"If the next probe succeeds, all have started in", "若下次探测成功，全部开始尚需"},
	"now.ramp":    {"Coming back: %d of %d slots", "正在恢复：%d / %d 个名额"},
	"now.nothing": {"No calls within the last hour.", "最近一小时没有调用。"}, "now.others": {"%d further hosts without trouble are not shown.", "另有 %d 个正常的主机未显示。"},
}
