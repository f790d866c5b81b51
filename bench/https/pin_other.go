//go:build !linux

package main

import "errors"

func pin(int, int) error { return errors.New("measures by /proc: Linux only") }
