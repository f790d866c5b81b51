package limiter

import (
	"iter"
	"slices"
)

// blockSize keeps the cost of moving neighbours near that of the search.
const blockSize = 128

// line is an ordered set that knows its first member and everybody's place. It
// is the one queue of this package: calls by turn, groups by their first call,
// alarms by date. Order must be strict and must not change for a member.
type line[T any] struct {
	before func(a, b T) bool
	blocks [][]T // none empty; each in order, and in order among themselves
	size   int
}

func newLine[T any](before func(a, b T) bool) line[T] { return line[T]{before: before} }

// first returns the first member; ok is false when there is none.
func (l *line[T]) first() (x T, ok bool) {
	if l.size == 0 {
		return x, false
	}
	return l.blocks[0][0], true
}

// last returns the last member; ok is false when there is none.
func (l *line[T]) last() (x T, ok bool) {
	if l.size == 0 {
		return x, false
	}
	in := l.blocks[len(l.blocks)-1]
	return in[len(in)-1], true
}

// insert puts x into its place.
func (l *line[T]) insert(x T) {
	l.size++
	if len(l.blocks) == 0 {
		l.blocks = append(l.blocks, []T{x})
		return
	}
	b, i := l.search(x)
	if b == len(l.blocks) {
		b--
		i = len(l.blocks[b])
	}
	block := slices.Insert(l.blocks[b], i, x)
	l.blocks[b] = block
	if len(block) > blockSize {
		half := len(block) / 2
		l.blocks = slices.Insert(l.blocks, b+1, slices.Clone(block[half:]))
		clear(block[half:])
		l.blocks[b] = block[:half]
	}
}

// remove takes x out; it says whether x was there.
func (l *line[T]) remove(x T) bool {
	b, i := l.search(x)
	if b == len(l.blocks) || l.before(x, l.blocks[b][i]) {
		return false
	}
	l.size--
	l.blocks[b] = slices.Delete(l.blocks[b], i, i+1)
	if len(l.blocks[b]) == 0 {
		l.blocks = slices.Delete(l.blocks, b, b+1)
	}
	return true
}

// rank is how many members stand before x, which need not be one itself.
func (l *line[T]) rank(x T) int {
	b, n := l.search(x)
	for _, block := range l.blocks[:b] {
		n += len(block)
	}
	return n
}

// all are the members in order; the line must not change while it is walked.
func (l *line[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, block := range l.blocks {
			for _, x := range block {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// members is a copy, so that the line may change while it is walked.
func (l *line[T]) members() []T { return slices.Concat(l.blocks...) }

// search finds the first member that does not stand before x; beyond the last
// one it returns len(blocks), 0.
func (l *line[T]) search(x T) (block, index int) {
	low, high := 0, len(l.blocks)
	for low < high {
		mid := (low + high) / 2
		if in := l.blocks[mid]; l.before(in[len(in)-1], x) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if block = low; block == len(l.blocks) {
		return block, 0
	}
	in := l.blocks[block]
	low, high = 0, len(in)-1
	for low < high {
		mid := (low + high) / 2
		if l.before(in[mid], x) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return block, low
}
