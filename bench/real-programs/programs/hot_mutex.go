// Eight goroutines that want one sync.Mutex, and how long they waited for it by Go's own metric.
//
// Answers each line with the time, the work done and the time waited.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const goroutines = 8

var (
	hotMutex sync.Mutex
	work     atomic.Uint64
)

//go:noinline
func compute(rounds int) int {
	total := 0
	for number := 0; number < rounds; number++ {
		total += number ^ total
	}
	return total
}

//go:noinline
func workUnderLock() {
	hotMutex.Lock()
	compute(200_000)
	hotMutex.Unlock()
}

func main() {
	begun := time.Now()
	for number := 0; number < goroutines; number++ {
		go func() {
			for {
				workUnderLock()
				work.Add(1)
				compute(20_000)
			}
		}()
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		waited := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
		metrics.Read(waited)
		seconds := waited[0].Value.Float64()
		fmt.Println(time.Since(begun).Nanoseconds(), work.Load(), uint64(seconds*1e9))
	}
}
