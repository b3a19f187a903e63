# CRuby's threads: one scene, by its name, until the input ends.
require "monitor"
require "thread"

scenes = {
  # All of them want the interpreter.
  "compute" => -> { 4.times { Thread.new { number = 0; loop { number += 1 } } } },
  # The connection is free only while nobody waits for its answer.
  "mutex" => lambda {
    connection = Mutex.new
    6.times { Thread.new { loop { connection.synchronize { sleep 0.005 } } } }
  },
  "lock" => lambda {
    connection = Mutex.new
    6.times { Thread.new { loop { connection.lock; sleep 0.005; connection.unlock } } }
  },
  "monitor" => lambda {
    connection = Monitor.new
    6.times { Thread.new { loop { connection.synchronize { sleep 0.005 } } } }
  },
  "idle" => lambda {
    2.times { Thread.new { Queue.new.pop } }
    2.times { Thread.new { sleep } }
    Thread.new { loop { sleep 0.01 } }
    Thread.new { Thread.stop }
    Thread.new { Thread.new { sleep }.join }
    Thread.new { queue = SizedQueue.new(1); 2.times { queue << 1 } }
    Thread.new { mutex = Mutex.new; mutex.synchronize { ConditionVariable.new.wait(mutex) } }
    Thread.new { monitor = Monitor.new; monitor.synchronize { monitor.new_cond.wait } }
  },
}
scenes.fetch(ARGV[0]).call
$stdin.read
