package saetta.rivals;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.HdrHistogram.Histogram;

/** The conversation with the harness, as `adapter/src/lib.rs` tells it. */
public final class Adapter {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static final long LOOK_EVERY_MS = 10;
    private static final List<Runnable> AT_END = new ArrayList<>();

    /** Starts the threads of a workload; comes back when it runs. */
    public interface Run {
        void start(Workload workload) throws Exception;
    }

    /** Work without end, which is measured by the round. */
    public interface Rounds {
        /** What one round has handled; nanoseconds of it go to the answer. */
        Round next() throws Exception;
    }

    /** One round. */
    public record Round(long tuples, long wallNs) {}

    /** What was counted up to a moment. */
    public record Counted(long tuples, long cpuNs) {}

    /** Who counts. */
    public interface Counts {
        Counted now() throws Exception;
    }

    private interface Conversation {
        void hold(Workload workload, BufferedReader in, PrintStream out) throws Exception;
    }

    private Adapter() {}

    /** What has to be done before this process ends: processes that it started. */
    public static void atEnd(Runnable last) {
        AT_END.add(last);
    }

    /** The main of an adapter whose threads are all in this JVM. Never comes back. */
    public static void main(String[] args, Run run) {
        main(args, run, () -> new Counted(Meter.tuples(), SYSTEM.getProcessCpuTime()));
    }

    /** The main of an adapter that is told elsewhere what was counted. */
    public static void main(String[] args, Run run, Counts counts) {
        hold(args, (workload, in, out) -> {
            run.start(workload);
            // From the first tuple on: what a cluster takes to start is not warm-up.
            while (counts.now().tuples() == 0) {
                Thread.sleep(LOOK_EVERY_MS);
            }
            Thread.sleep(workload.warmUpMs);
            ready(out);
            while (in.readLine() != null) {
                Meter.LATENCY.reset();
                Counted start = counts.now();
                long wallNs = System.nanoTime();
                Thread.sleep(workload.windowMs);
                Counted end = counts.now();
                wallNs = System.nanoTime() - wallNs;
                answer(out, end.tuples() - start.tuples(), wallNs, end.cpuNs() - start.cpuNs());
            }
        });
    }

    /** The main of an adapter whose windows are rounds. */
    public static void rounds(String[] args, java.util.function.Function<Workload, Rounds> of) {
        hold(args, (workload, in, out) -> {
            Rounds rounds = of.apply(workload);
            long end = System.nanoTime() + workload.warmUpMs * 1_000_000;
            do {
                rounds.next();
            } while (System.nanoTime() < end);
            ready(out);
            while (in.readLine() != null) {
                long cpuNs = SYSTEM.getProcessCpuTime();
                Round round = rounds.next();
                answer(out, round.tuples(), round.wallNs(), SYSTEM.getProcessCpuTime() - cpuNs);
            }
        });
    }

    private static void hold(String[] args, Conversation conversation) {
        PrintStream out = System.out;
        // What a rival prints is not part of the conversation.
        System.setOut(System.err);
        int code = 0;
        try {
            conversation.hold(Workload.of(args), new BufferedReader(new InputStreamReader(System.in)), out);
        } catch (Throwable e) {
            e.printStackTrace();
            code = 1;
        }
        for (int i = AT_END.size() - 1; i >= 0; i--) {
            AT_END.get(i).run();
        }
        // Nothing of a rival is shut down in order: its files are in a folder that the harness removes.
        Runtime.getRuntime().halt(code);
    }

    private static void ready(PrintStream out) {
        out.println("{\"ready\": true}");
        out.flush();
    }

    private static void answer(PrintStream out, long tuples, long wallNs, long cpuNs) {
        Histogram latency = Meter.LATENCY.copy();
        ByteBuffer encoded = ByteBuffer.allocate(latency.getNeededByteBufferCapacity());
        int n = latency.encodeIntoByteBuffer(encoded);
        String hex = HexFormat.of().formatHex(encoded.array(), 0, n);
        out.printf("{\"tuples\": %d, \"wall_ns\": %d, \"cpu_ns\": %d, \"histogram\": \"%s\"}%n", tuples, wallNs, cpuNs, hex);
        out.flush();
    }
}
