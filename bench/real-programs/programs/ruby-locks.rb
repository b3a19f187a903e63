# Ruby threads, as a web server's worker has them.
#
#   threads   four threads compute: only one at a time can hold the interpreter's lock (the GVL)
#   mutex     six threads share one connection behind a Thread::Mutex; each request holds it until its answer, 4 ms later
#   pool      six threads wait on a Queue which gets ten tiny jobs a second
#
# Its first line has its threads' numbers. Answers each line with the time, the work done and the time waited for the mutex.
require "socket"

def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

# The other end of the connection.
def database
  ours, theirs = UNIXSocket.pair
  fork do
    # Held open by the child, the connection and the bench's own input would outlive the program.
    ours.close
    $stdin.close
    while theirs.gets
      sleep 0.004
      theirs.puts "row"
    end
  rescue SystemCallError
    # The program has ended.
  end
  theirs.close
  ours
end

def compute
  total = 0
  10_000.times { |step| total += step }
  total
end

mode = ARGV.fetch(0)
work = Array.new(6, 0)
# Of each thread: how long it waited in all, and since when it waits now. One object, so that nobody sees half of a change.
waits = Array.new(6) { [0, nil] }

threads =
  case mode
  when "threads"
    Array.new(4) do |number|
      Thread.new do
        loop do
          compute
          work[number] += 1
        end
      end
    end
  when "mutex"
    connection = database
    connection_lock = Mutex.new
    Array.new(6) do |number|
      Thread.new do
        loop do
          waited_ns = waits[number][0]
          begun = now_ns
          waits[number] = [waited_ns, begun]
          connection_lock.lock
          waits[number] = [waited_ns + now_ns - begun, nil]
          connection.puts "select"
          connection.gets
          connection_lock.unlock
          compute
          work[number] += 1
        end
      end
    end
  when "pool"
    jobs = Queue.new
    workers = Array.new(6) { Thread.new { loop { jobs.pop.call } } }
    Thread.new do
      loop do
        jobs << -> { 1 + 1 }
        sleep 0.1
      end
    end
    workers
  else
    abort "usage: ruby-locks.rb threads|mutex|pool"
  end

$stdout.sync = true
sleep 0.01 while threads.any? { |thread| thread.native_thread_id.nil? }
puts "ready #{threads.map(&:native_thread_id).join(" ")}"
while $stdin.gets
  now = now_ns
  puts "#{now} #{work.sum} #{waits.sum { |waited_ns, since| waited_ns + (since ? [now - since, 0].max : 0) }}"
end
exit!
