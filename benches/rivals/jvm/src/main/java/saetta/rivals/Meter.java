package saetta.rivals;

import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.SynchronizedHistogram;

/**
 * Where tuples and latencies of this process are counted. All threads of a rival in one JVM share it. In a worker process of its own (the property
 * `saetta.meters` names a folder) the count is also written to a file there, which the adapter's process reads.
 */
public final class Meter {
    /** Longs between two threads' counts: no two on a cache line, nor on the line the processor fetches beside it. */
    private static final int STEP = 16;
    private static final int COUNTERS = 64;
    private static final long WRITE_EVERY_MS = 5;
    private static final AtomicLongArray TUPLES = new AtomicLongArray((COUNTERS + 1) * STEP);
    private static final AtomicLong TAKEN = new AtomicLong();
    private static final ThreadLocal<Integer> MINE =
            ThreadLocal.withInitial(() -> (int) (1 + TAKEN.getAndIncrement() % COUNTERS) * STEP);

    static final Histogram LATENCY = new SynchronizedHistogram(1, 100_000_000_000L, 3);
    /** Stamps that have arrived; written by the sink, read by the source. */
    static final AtomicLong ARRIVED = new AtomicLong();

    static {
        String meters = System.getProperty("saetta.meters");
        if (meters != null) {
            Thread writer = new Thread(() -> write(Path.of(meters, Long.toString(ProcessHandle.current().pid()))), "meter");
            writer.setDaemon(true);
            writer.start();
        }
    }

    private Meter() {}

    private static void write(Path file) {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer count = channel.map(FileChannel.MapMode.READ_WRITE, 0, Long.BYTES);
            while (true) {
                count.putLong(0, tuples());
                Thread.sleep(WRITE_EVERY_MS);
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException("writing " + file, e);
        }
    }

    /** The calling thread's place, to be kept by the caller. Never 0. */
    public static int mine() {
        return MINE.get();
    }

    /** Counts one more at the caller's place. */
    public static void count(int place) {
        TUPLES.lazySet(place, TUPLES.get(place) + 1);
    }

    /** The sink has got a stamp: records its age, then lets the source go on. */
    public static void arrived(long stampNs, int place) {
        LATENCY.recordValue(Math.max(1, Math.min(100_000_000_000L, System.nanoTime() - stampNs)));
        count(place);
        ARRIVED.lazySet(ARRIVED.get() + 1);
    }

    static long tuples() {
        long sum = 0;
        for (int i = 0; i <= COUNTERS; i++) {
            sum += TUPLES.get(i * STEP);
        }
        return sum;
    }
}
