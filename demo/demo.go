// Package demo answers one question: what does the proxy do for a bot, step by step, on real connections?
//
// It brings an upstream that misbehaves on demand and a walk-through that
// shows, and checks, how the proxy deals with it.
package demo
