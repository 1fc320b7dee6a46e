package limit_test

import (
	"testing"
	"time"

	"countersign/company/internal/limit"
)

func TestALimiterCountsEachKeyByItself(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_900_000, 0)
	limiter := limit.New(2, 10)
	for range 2 {
		if wait := limiter.Allow("a", now); wait != 0 {
			t.Fatalf("within the limit: wait %v, want 0", wait)
		}
	}
	if wait := limiter.Allow("a", now); wait != 30*time.Second {
		t.Errorf("over the limit: wait %v, want 30s", wait)
	}
	if wait := limiter.Allow("b", now); wait != 0 {
		t.Errorf("another key: wait %v, want 0", wait)
	}
	if wait := limiter.Allow("a", now.Add(30*time.Second)); wait != 0 {
		t.Errorf("after the wait that was named: wait %v, want 0", wait)
	}
}

func TestALimiterWithoutANumberLimitsNothing(t *testing.T) {
	t.Parallel()
	limiter := limit.New(0, 10)
	for range 1000 {
		if wait := limiter.Allow("a", time.Unix(1_790_900_000, 0)); wait != 0 {
			t.Fatalf("wait %v, want 0", wait)
		}
	}
}

func TestALimiterForgetsTheKeyUsedLongestAgo(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_900_000, 0)
	limiter := limit.New(1, 2)
	for _, key := range []string{"a", "b", "a", "c"} { // c puts b out, since a was used after it
		limiter.Allow(key, now)
	}
	if wait := limiter.Allow("a", now); wait == 0 {
		t.Error("a was forgotten, although it was used after b")
	}
	if wait := limiter.Allow("b", now); wait != 0 {
		t.Error("b was remembered beyond the limit of keys")
	}
}
