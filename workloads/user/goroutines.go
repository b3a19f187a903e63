// Goroutines that wait for locks of sync, and others that wait for none. One that has a lock sleeps, so that others have a CPU.
//
// Runs for as long as the first argument says ("4s"), and prints in JSON for how long goroutines waited, by their own clocks.
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

type account struct {
	balance int
	lock    sync.Mutex
}

var (
	ledger     sync.Mutex
	table      sync.RWMutex
	waitedFor  [4]atomic.Int64
	neverReady = make(chan int)
)

const (
	ofLedger = iota
	ofHeap
	ofReaders
	ofWriters
)

func waited(index int, begun time.Time) {
	waitedFor[index].Add(time.Since(begun).Nanoseconds())
}

//go:noinline
func post() {
	begun := time.Now()
	ledger.Lock()
	waited(ofLedger, begun)
	time.Sleep(2 * time.Millisecond)
	ledger.Unlock()
}

//go:noinline
func deposit(of *account) {
	begun := time.Now()
	of.lock.Lock()
	waited(ofHeap, begun)
	time.Sleep(3 * time.Millisecond)
	of.balance++
	of.lock.Unlock()
}

//go:noinline
func lookUp() {
	begun := time.Now()
	table.RLock()
	waited(ofReaders, begun)
	time.Sleep(4 * time.Millisecond)
	table.RUnlock()
}

//go:noinline
func change() {
	begun := time.Now()
	table.Lock()
	waited(ofWriters, begun)
	time.Sleep(8 * time.Millisecond)
	table.Unlock()
}

func main() {
	lasts, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	end := time.Now().Add(lasts)
	onHeap := new(account)
	var group sync.WaitGroup
	start := func(number int, work func()) {
		for ; number > 0; number-- {
			group.Add(1)
			go func() {
				defer group.Done()
				for time.Now().Before(end) {
					work()
				}
			}()
		}
	}
	start(6, post)
	start(4, func() { deposit(onHeap) })
	start(3, lookUp)
	start(1, change)
	for number := 0; number < 5; number++ {
		go func() { <-neverReady }()
	}
	group.Wait()
	fmt.Printf("{\"ledger_ns\": %d, \"heap_ns\": %d, \"readers_ns\": %d, \"writers_ns\": %d}\n", waitedFor[ofLedger].Load(),
		waitedFor[ofHeap].Load(), waitedFor[ofReaders].Load(), waitedFor[ofWriters].Load())
}
