import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** A pool of 16 threads that has a tiny job twenty times a second. */
public class IdlePool {
    static volatile long done;

    public static void main(String[] arguments) throws Exception {
        ThreadPoolExecutor pool =
                new ThreadPoolExecutor(16, 16, 1, TimeUnit.HOURS, new LinkedBlockingQueue<>());
        pool.prestartAllCoreThreads();
        ScheduledExecutorService clock = Executors.newScheduledThreadPool(2);
        clock.scheduleAtFixedRate(() -> pool.execute(() -> done++), 0, 50, TimeUnit.MILLISECONDS);
        System.out.println("ready");
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
