package main

import (
	"retryproxy/admin"
	"retryproxy/redact"
)

// letters is what operators may do with calls that were given up.
func (a *app) letters() admin.Letters {
	p := a.proxy
	return admin.Letters{
		List: p.Letters, Each: p.EachLetter, Show: p.Letter,
		Requeue: p.Requeue, Later: p.Later, Resolve: p.ResolveLetter, Drop: p.DropLetter, DropAll: p.DropLetters,
		Preview: p.Preview, StartBulk: p.StartBulk, Bulk: p.Bulk, StopBulk: p.StopBulk,
		Hide: func() *redact.Names { return a.proxy.Settings().Hide },
		Revealed: func(what, client string) {
			a.log.Warn("an operator is shown what may be secret of dead letters", "letter", what, "client", client)
		},
	}
}
