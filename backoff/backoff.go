// Package backoff answers one question: how long until the next attempt?
package backoff
