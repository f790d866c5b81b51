package dashboard

var textsShops = map[string]two{
	"shops.heat": {"Failures by shop and minute, last hour", "最近一小时各店铺每分钟的失败"},
	"shops.lead": {"A dark row is a shop's own fault, a dark column an outage.", "一行变深是该店铺自身的问题，一列变深是整体故障。"},
	"shops.cell": {"shop %s, %s: %d of %d failed", "店铺 %s，%s：%[4]d 个中失败 %[3]d 个"},
	"shops.h0":   {"none failed", "无失败"}, "shops.h1": {"below 10 %", "低于 10 %"}, "shops.h2": {"10 to 30 %", "10–30 %"}, "shops.h3": {"30 to 70 %", "30–70 %"}, "shops.h4": {"above 70 %", "高于 70 %"},
	"shops.others":  {"%d shops with fewer failures are not in the picture.", "另有 %d 家失败较少的店铺未画出。"},
	"shops.table":   {"Calls that are remembered, and the retry tokens that each shop has left.", "仍记得的调用，以及各店铺剩余的重试令牌。"},
	"shops.retries": {"Retries", "重试"}, "shops.tokens": {"Tokens left", "剩余令牌"}, "shops.next": {"Next token in", "下一个令牌"},
}
