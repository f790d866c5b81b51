package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Times of the listener; an operator's requests are small and quick.
const (
	headerTimeout = 5 * time.Second
	readTimeout   = 15 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	leaveTimeout  = time.Second // for requests in progress when ctx ends
	headerBytes   = 16 << 10
)

// Serve answers requests on l until ctx ends; then it closes l.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout,
		WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	left := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		leave(s)
	})
	err := s.Serve(l)
	if !stop() {
		<-left
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin: serve %s: %w", l.Addr(), err)
}

// leave ends the server, at once when requests take too long.
func leave(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
