import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Eight threads that want one lock, and how long they were blocked or parked by the machine's own account.
 *
 * Answers each line with the time, the work done and the time waited.
 */
public class HotLocks {
    static final int THREADS = 8;
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();
    static final AtomicLong work = new AtomicLong();
    static volatile long sink;

    static void compute(int rounds) {
        long total = 0;
        for (int number = 0; number < rounds; number++) {
            total += number ^ total;
        }
        sink = total;
    }

    static void underMonitor() {
        synchronized (monitor) {
            compute(200_000);
        }
    }

    static void underLock() {
        lock.lock();
        try {
            compute(200_000);
        } finally {
            lock.unlock();
        }
    }

    public static void main(String[] arguments) throws Exception {
        boolean synchronizes = arguments[0].equals("synchronized");
        ThreadMXBean account = ManagementFactory.getThreadMXBean();
        account.setThreadContentionMonitoringEnabled(true);
        long[] ids = new long[THREADS];
        for (int number = 0; number < THREADS; number++) {
            Thread thread = new Thread(() -> {
                while (true) {
                    if (synchronizes) {
                        underMonitor();
                    } else {
                        underLock();
                    }
                    work.incrementAndGet();
                    compute(20_000);
                }
            });
            thread.setDaemon(true);
            thread.start();
            ids[number] = thread.getId();
        }
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            long waited = 0;
            for (ThreadInfo thread : account.getThreadInfo(ids)) {
                waited += thread.getBlockedTime() + thread.getWaitedTime();
            }
            System.out.println(System.nanoTime() + " " + work.get() + " " + waited * 1_000_000);
        }
    }
}
