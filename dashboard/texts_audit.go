package dashboard

var textsAudit = map[string]two{
	"audit.lead": {"Who changed what, the newest first.", "谁改动了什么，最新的在前。"},
	"audit.who":  {"Who", "何人"}, "audit.action": {"Action", "操作"}, "audit.target": {"What", "对象"}, "audit.result": {"Result", "结果"},
	"audit.letter.requeue": {"letter run again", "再次执行死信"}, "audit.letter.resolve": {"letter settled", "登记死信结果"}, "audit.letter.drop": {"letter dropped", "丢弃死信"},
	"audit.letters.requeue": {"many letters run again", "批量再次执行死信"}, "audit.letters.drop": {"many letters dropped", "批量丢弃死信"}, "audit.bulk.stop": {"bulk stopped", "停止批量"},
	"audit.breaker.reset": {"breaker reset", "重置熔断"}, "audit.shop.resume": {"shop goes on", "恢复店铺"}, "audit.call.cancel": {"call ended", "结束调用"}, "audit.call.expedite": {"call hurried", "加急调用"},
	"audit.config.reload": {"configuration read again", "重新加载配置"}, "audit.retries.set": {"retry switch", "重试开关"}, "audit.report.reset": {"report begun anew", "重置报告"},
	"audit.letter.reveal": {"contents shown", "查看内容"}, "audit.call.reveal": {"contents of a call shown", "查看调用内容"}, "audit.letters.reveal": {"contents exported", "导出内容"}, "audit.pins.reset": {"pass-throughs ended", "重置直通"}, "audit.alerts.test": {"test alarm", "测试告警"}, "audit.newcodes.seen": {"code seen", "知晓错误码"}, "audit.token.guess": {"wrong tokens", "令牌多次错误"},
}
