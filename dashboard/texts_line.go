package dashboard

var textsLine = map[string]two{
	"line.histogram": {"When calls go on, next 10 minutes", "未来 10 分钟内继续执行的调用"},
	"line.nobody":    {"Nobody waits for a date.", "没有调用在等待某个时间。"},
	"line.rest":      {"%d later than that, %d without a date.", "更晚的 %d 个，没有时间的 %d 个。"},
	"line.why":       {"Waits for", "等待原因"}, "line.place": {"Place", "位置"}, "line.act": {"Act", "操作"},
	"line.expedite": {"Try as soon as possible", "尽快重试"}, "line.cancel": {"End it now", "立即结束"},
	"lane.fresh": {"fresh", "新调用"}, "lane.backlog": {"backlog", "积压"},
	"dimension.global": {"in all", "全局"}, "dimension.task_type": {"of the task type", "任务类型"}, "dimension.shop": {"of the shop", "店铺"},
}
