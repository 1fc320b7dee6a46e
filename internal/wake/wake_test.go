package wake_test

import (
	"testing"

	"countersign/internal/wake"
)

func TestHubWakesOnlyItsTopicAndKeepsOneSignal(t *testing.T) {
	t.Parallel()
	var hub wake.Hub
	a, cancelA := hub.Subscribe("a")
	b, cancelB := hub.Subscribe("b")
	defer cancelB()
	hub.Wake("a")
	hub.Wake("a")
	select {
	case <-a:
	default:
		t.Fatal("a was not woken")
	}
	select {
	case <-a:
		t.Fatal("two wakes must become one signal")
	case <-b:
		t.Fatal("b was woken by a")
	default:
	}
	cancelA()
	hub.Wake("a")
	select {
	case <-a:
		t.Fatal("woken after cancel")
	default:
	}
}
