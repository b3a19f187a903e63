# CRuby's threads: one scene, by its name, until the input ends.
require "thread"

scenes = {
  # All of them want the interpreter.
  "compute" => -> { 4.times { Thread.new { number = 0; loop { number += 1 } } } },
  # The connection is free only while nobody waits for its answer.
  "mutex" => lambda {
    connection = Mutex.new
    6.times { Thread.new { loop { connection.synchronize { sleep 0.005 } } } }
  },
  "idle" => lambda {
    2.times { Thread.new { Queue.new.pop } }
    2.times { Thread.new { sleep } }
    Thread.new { mutex = Mutex.new; mutex.synchronize { ConditionVariable.new.wait(mutex) } }
  },
}
scenes.fetch(ARGV[0]).call
$stdin.read
