// Package wake tells waiting readers that something may have changed.
//
// A wake-up carries no truth: whoever is woken reads the store again, and whoever waits subscribes before it reads, so that
// a change between the two is not missed.
package wake

import "sync"

// Hub wakes the subscribers of a topic. The zero value is ready.
type Hub struct {
	mutex sync.Mutex
	topic map[string]map[chan struct{}]struct{}
}

// Subscribe returns a channel that holds one signal after any [Hub.Wake] of the topic, and a function that ends the
// subscription and must be called. Signals that come faster than they are read become one.
func (h *Hub) Subscribe(topic string) (signal <-chan struct{}, cancel func()) {
	channel := make(chan struct{}, 1)
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.topic == nil {
		h.topic = make(map[string]map[chan struct{}]struct{})
	}
	if h.topic[topic] == nil {
		h.topic[topic] = make(map[chan struct{}]struct{})
	}
	h.topic[topic][channel] = struct{}{}
	return channel, func() {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		delete(h.topic[topic], channel)
		if len(h.topic[topic]) == 0 {
			delete(h.topic, topic)
		}
	}
}

// Wake signals every subscriber of the topic and never blocks. Call it after the commit.
func (h *Hub) Wake(topic string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for channel := range h.topic[topic] {
		select {
		case channel <- struct{}{}:
		default:
		}
	}
}
