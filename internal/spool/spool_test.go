package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"retryproxy/message"
)

// newPool keeps 16 KiB of a body in memory, 64 KiB of all, 256 KiB on disk.
func newPool(t testing.TB) (*Pool, string) {
	t.Helper()
	dir := t.TempDir()
	return New(Config{Memory: 16 << 10, MemoryTotal: 64 << 10, DiskTotal: 256 << 10, Dir: dir}), dir
}

func content(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n] }

func readAll(t testing.TB, b *Buffer) []byte {
	t.Helper()
	r, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// assertEmpty checks that nothing is held and no file is left.
func assertEmpty(t testing.TB, p *Pool, dir string) {
	t.Helper()
	if memory, disk := p.Usage(); memory != 0 || disk != 0 {
		t.Errorf("Usage() = %d, %d, want 0, 0", memory, disk)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

func TestFillKeepsTheBody(t *testing.T) {
	tests := []struct {
		name     string
		size     int
		declared bool
		inMemory bool
	}{
		{"empty, declared", 0, true, true},
		{"empty, unknown", 0, false, true},
		{"small, declared", 1000, true, true},
		{"small, unknown", 1000, false, true},
		{"several pieces", 9000, false, true},
		{"as much as memory takes, declared", 16 << 10, true, true},
		{"more than memory takes, declared", 16<<10 + 1, true, false},
		{"more than memory takes, unknown", 16<<10 + 1, false, false},
		{"the limit, declared", 200 << 10, true, false},
		{"the limit, unknown", 200 << 10, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := newPool(t)
			want, declared := content(tt.size), int64(-1)
			if tt.declared {
				declared = int64(tt.size)
			}
			b, err := p.Fill(bytes.NewReader(want), declared, 200<<10)
			if err != nil {
				t.Fatalf("Fill() = %v", err)
			}
			for range 2 {
				if got := readAll(t, b); !bytes.Equal(got, want) {
					t.Errorf("content of %d bytes differs from the %d sent", len(got), len(want))
				}
			}
			held, inMemory := b.Bytes()
			if inMemory != tt.inMemory || inMemory && !bytes.Equal(held, want) {
				t.Errorf("Bytes() = %d bytes, %v, want in memory %v", len(held), inMemory, tt.inMemory)
			}
			if b.Len() != int64(tt.size) {
				t.Errorf("Len() = %d, want %d", b.Len(), tt.size)
			}
			if err := errors.Join(b.Close(), b.Close()); err != nil {
				t.Errorf("Close() twice = %v", err)
			}
			if _, err := b.Open(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Open() after Close = %v, want %v", err, os.ErrClosed)
			}
			assertEmpty(t, p, dir)
		})
	}
}

func TestFillTooLarge(t *testing.T) {
	tests := []struct {
		name     string
		declared int64
		limit    int64
		kept     int
	}{
		{"declared", 5000, 4999, 0},
		{"unknown, in memory", -1, 4999, 5000},
		{"unknown, in a file", -1, 19999, 20000},
		{"nothing is allowed", -1, 0, 1},
		{"negative limit", 1, -1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := newPool(t)
			want := content(30000)
			r := bytes.NewReader(want)
			b, err := p.Fill(r, tt.declared, tt.limit)
			if err != ErrTooLarge || b.Len() != int64(tt.kept) {
				t.Fatalf("Fill() = %d bytes, %v, want %d, %v", b.Len(), err, tt.kept, ErrTooLarge)
			}
			rest, _ := io.ReadAll(r)
			if got := append(readAll(t, b), rest...); !bytes.Equal(got, want) {
				t.Errorf("what was kept and the rest make %d bytes, want %d", len(got), len(want))
			}
			b.Close()
			assertEmpty(t, p, dir)
		})
	}
}

func TestFillLeavesWhatFollowsTheBody(t *testing.T) {
	p, _ := newPool(t)
	r := strings.NewReader("bodyGET / HTTP/1.1")
	b, err := p.Fill(r, 4, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if rest, _ := io.ReadAll(r); string(rest) != "GET / HTTP/1.1" {
		t.Errorf("left in the reader: %q", rest)
	}
}

func TestFillErrorsFreeEverything(t *testing.T) {
	broken := errors.New("the client left")
	after := func(n int, err error) io.Reader {
		return io.MultiReader(bytes.NewReader(content(n)), iotest.ErrReader(err))
	}
	tests := []struct {
		name     string
		r        io.Reader
		declared int64
		want     error
	}{
		{"reader fails in memory", after(100, broken), -1, broken},
		{"reader fails in a file", after(20000, broken), -1, broken},
		{"cut short, unknown", after(100, io.ErrUnexpectedEOF), -1, io.ErrUnexpectedEOF},
		{"shorter than declared", bytes.NewReader(content(100)), 101, io.ErrUnexpectedEOF},
		{"shorter than declared, in a file", bytes.NewReader(content(20000)), 20001, io.ErrUnexpectedEOF},
		{"disk full", bytes.NewReader(content(300 << 10)), -1, ErrFull},
		{"disk would be full", iotest.ErrReader(broken), 300 << 10, ErrFull},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := newPool(t)
			b, err := p.Fill(tt.r, tt.declared, 1<<20)
			if b != nil || !errors.Is(err, tt.want) {
				t.Errorf("Fill() = %v, %v, want %v", b, err, tt.want)
			}
			assertEmpty(t, p, dir)
		})
	}
}

func TestFillNoSuchDirectory(t *testing.T) {
	p := New(Config{Memory: 10, MemoryTotal: 10, DiskTotal: 1000, Dir: t.TempDir() + "/none"})
	_, err := p.Fill(bytes.NewReader(content(100)), 100, 100)
	if !errors.Is(err, ErrFull) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none") {
		t.Errorf("Fill() = %v, want %v and %v", err, ErrFull, os.ErrNotExist)
	}
	assertEmpty(t, p, p.cfg.Load().Dir)
}

func TestFailedWriteSaysWhy(t *testing.T) {
	p, dir := newPool(t)
	file, err := os.Create(dir + "/body")
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	b := &Buffer{pool: p, file: file}
	err = b.write([]byte("x"))
	if !errors.Is(err, ErrFull) || !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), os.ErrClosed.Error()) {
		t.Errorf("write() to a closed file = %v, want %v and %v", err, ErrFull, os.ErrClosed)
	}
}

// stalled is a body that does not come. It tells when it is read.
type stalled struct {
	told chan error
	end  chan struct{}
}

func (s stalled) Read([]byte) (int, error) {
	s.told <- nil
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// Who only announces a body takes no room for it, in memory or on disk.
func TestAnnouncedBodiesTakeNoRoom(t *testing.T) {
	const announced = 200 << 10
	for _, tt := range []struct {
		name   string
		memory int64
		held   int64 // in memory by each
	}{
		{"on disk", 16 << 10, 0},
		{"in memory", 256 << 10, 64 << 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			p := New(Config{Memory: tt.memory, MemoryTotal: 1 << 20, DiskTotal: 256 << 10, Dir: dir})
			end := make(chan struct{})
			var wg sync.WaitGroup
			for range 8 {
				s := stalled{make(chan error, 2), end}
				wg.Go(func() {
					_, err := p.Fill(s, announced, 1<<20)
					s.told <- err
				})
				if err := <-s.told; err != nil {
					t.Errorf("Fill() before a byte came = %v", err)
				}
			}
			if memory, disk := p.Usage(); memory != 8*tt.held || disk != 0 {
				t.Errorf("Usage() = %d, %d, want %d, 0", memory, disk, 8*tt.held)
			}
			b, err := p.Fill(bytes.NewReader(content(announced)), announced, 1<<20)
			if err != nil {
				t.Fatalf("Fill() beside them = %v", err)
			}
			if got := readAll(t, b); !bytes.Equal(got, content(announced)) {
				t.Errorf("content of %d bytes differs from the %d sent", len(got), announced)
			}
			b.Close()
			close(end)
			wg.Wait()
			assertEmpty(t, p, dir)
		})
	}
}

func TestDeclaredSmallBodyIsOneExactPiece(t *testing.T) {
	p := New(Config{Memory: 256 << 10, MemoryTotal: 1 << 20, DiskTotal: 0})
	for _, size := range []int{1, 5000, 64 << 10} {
		b, err := p.Fill(bytes.NewReader(content(size)), int64(size), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if held, _ := b.Bytes(); cap(held) != size {
			t.Errorf("a body of %d bytes got room for %d", size, cap(held))
		}
		b.Close()
	}
}

func TestMemoryTotalSendsBodiesToFiles(t *testing.T) {
	p, dir := newPool(t)
	var all []*Buffer
	for i := range 6 {
		b, err := p.Fill(bytes.NewReader(content(16<<10)), 16<<10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, inMemory := b.Bytes(); inMemory != (i < 4) {
			t.Errorf("body %d in memory = %v, want %v", i, inMemory, i < 4)
		}
		all = append(all, b)
	}
	if memory, disk := p.Usage(); memory != 64<<10 || disk != 32<<10 {
		t.Errorf("Usage() = %d, %d, want %d, %d", memory, disk, 64<<10, 32<<10)
	}
	for _, b := range all {
		b.Close()
	}
	assertEmpty(t, p, dir)
}

func TestFilesArePrivate(t *testing.T) {
	p, dir := newPool(t)
	b, err := p.Fill(bytes.NewReader(content(20000)), -1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	info, err := b.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 && info.Mode().Perm() != 0o600 {
		t.Errorf("%v is visible with mode %v", left, info.Mode())
	}
}

func TestManyReadersAtOnce(t *testing.T) {
	for _, size := range []int{1000, 100000} {
		p, dir := newPool(t)
		want := content(size)
		b, err := p.Fill(iotest.HalfReader(bytes.NewReader(want)), -1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if got := readAll(t, b); !bytes.Equal(got, want) {
					t.Errorf("a reader got %d bytes, want %d", len(got), len(want))
				}
			})
		}
		wg.Wait()
		b.Close()
		assertEmpty(t, p, dir)
	}
}

func TestCloseUnderAReader(t *testing.T) {
	p, _ := newPool(t)
	b, err := p.Fill(bytes.NewReader(content(100000)), -1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Open()
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := r.Read(make([]byte, 10)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read() after Close = %v, want %v", err, os.ErrClosed)
	}
}

func TestBudgetsUnderContention(t *testing.T) {
	p, dir := newPool(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for size := range 60 {
				b, err := p.Fill(bytes.NewReader(content(size*1000)), -1, 50000)
				if err != nil && err != ErrTooLarge && !errors.Is(err, ErrFull) {
					t.Errorf("Fill() = %v", err)
				}
				if b != nil {
					b.Close()
				}
			}
		})
	}
	wg.Wait()
	assertEmpty(t, p, dir)
}

func TestBody(t *testing.T) {
	p, _ := newPool(t)
	b, err := p.Fill(strings.NewReader("hello"), 5, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	body := b.Body(message.Fields{{Name: "Digest", Value: "x"}})
	if body.Len() != 5 || body.Trailers().Get("digest") != "x" {
		t.Errorf("Body() has length %d and trailers %v", body.Len(), body.Trailers())
	}
}

func BenchmarkFill(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "64KiB file": 64 << 10} {
		b.Run(name, func(b *testing.B) {
			p, _ := newPool(b)
			r, data := bytes.NewReader(nil), content(size)
			b.ReportAllocs()
			for b.Loop() {
				r.Reset(data)
				buffer, err := p.Fill(r, int64(size), 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				buffer.Close()
			}
		})
	}
}

func TestSharingDrawsOnTheSameTotals(t *testing.T) {
	p := New(Config{Memory: 100, MemoryTotal: 150, DiskTotal: 1000, Dir: t.TempDir()})
	small := p.Sharing(10)
	a, err := p.Fill(strings.NewReader(strings.Repeat("a", 100)), 100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := small.Fill(strings.NewReader(strings.Repeat("b", 50)), 50, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if mem, disk := p.Usage(); mem != 100 || disk != 50 {
		t.Errorf("Usage() = %d, %d, want 100 in memory and 50 on disk", mem, disk)
	}
	a.Close()
	b.Close()
	if mem, disk := small.Usage(); mem != 0 || disk != 0 {
		t.Errorf("Usage() after Close = %d, %d, want 0, 0", mem, disk)
	}
}

func TestConfigureChangesTheBoundsOfWhatComes(t *testing.T) {
	p := New(Config{Memory: 100, MemoryTotal: 100, DiskTotal: 100, Dir: t.TempDir()})
	a, err := p.Fill(strings.NewReader(strings.Repeat("a", 100)), 100, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	p.Configure(Config{Memory: 100, MemoryTotal: 50, DiskTotal: 10, Dir: t.TempDir()})
	if _, err := p.Fill(strings.NewReader(strings.Repeat("b", 50)), 50, 1000); !errors.Is(err, ErrFull) {
		t.Errorf("Fill beyond the new totals = %v, want ErrFull", err)
	}
	p.Configure(Config{Memory: 100, MemoryTotal: 500, DiskTotal: 10})
	b, err := p.Fill(strings.NewReader(strings.Repeat("b", 50)), 50, 1000)
	if err != nil {
		t.Fatalf("Fill within the new totals = %v", err)
	}
	b.Close()
}

func TestHolds(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		size int64
		want bool
	}{
		{Config{Memory: 10, MemoryTotal: 100, DiskTotal: 1000}, 1000, true},
		{Config{Memory: 10, MemoryTotal: 100, DiskTotal: 1000}, 1001, false},
		{Config{Memory: 10, MemoryTotal: 100}, 10, true},
		{Config{Memory: 10, MemoryTotal: 100}, 11, false},
		{Config{Memory: 10, MemoryTotal: 5, DiskTotal: 5}, 6, false},
	} {
		p := New(tt.cfg)
		if got := p.Holds(tt.size); got != tt.want {
			t.Errorf("%+v holds %d: %v, want %v", tt.cfg, tt.size, got, tt.want)
		}
		if b, err := p.Fill(strings.NewReader(strings.Repeat("x", int(tt.size))), tt.size, tt.size); (err == nil) != tt.want {
			t.Errorf("%+v: Fill of %d = %v, want that it holds: %v", tt.cfg, tt.size, err, tt.want)
		} else if b != nil {
			b.Close()
		}
	}
}
