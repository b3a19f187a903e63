import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Two threads that wait for each other for ever, and a third one behind them: for monitors, or for locks. Ends when its input does.
 */
public class Deadlock {
    static class Account {
        long cents;
    }

    static void synchronizedBoth(Object first, Object second, CountDownLatch bothHaveOne) throws Exception {
        synchronized (first) {
            bothHaveOne.countDown();
            bothHaveOne.await();
            synchronized (second) {
                throw new AssertionError("no deadlock");
            }
        }
    }

    static void lockBoth(Lock first, Lock second, CountDownLatch bothHaveOne) throws Exception {
        first.lock();
        bothHaveOne.countDown();
        bothHaveOne.await();
        second.lock();
    }

    interface Body {
        void run() throws Exception;
    }

    static void start(String name, Body body) {
        new Thread(() -> {
            try {
                body.run();
            } catch (Exception error) {
                throw new AssertionError(error);
            }
        }, name).start();
    }

    public static void main(String[] arguments) throws Exception {
        CountDownLatch bothHaveOne = new CountDownLatch(2);
        if (arguments[0].equals("synchronized")) {
            Account from = new Account(), to = new Account();
            start("transfer", () -> synchronizedBoth(from, to, bothHaveOne));
            start("refund", () -> synchronizedBoth(to, from, bothHaveOne));
            bothHaveOne.await();
            start("report", () -> {
                synchronized (from) {
                    from.cents++;
                }
            });
        } else {
            Lock from = new ReentrantLock(), to = new ReentrantLock();
            start("transfer", () -> lockBoth(from, to, bothHaveOne));
            start("refund", () -> lockBoth(to, from, bothHaveOne));
            bothHaveOne.await();
            start("report", from::lock);
        }
        // They sleep before anybody looks.
        Thread.sleep(500);
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }
}
