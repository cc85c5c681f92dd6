package saetta.rivals;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringTokenizer;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.SinkFunction;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;

/**
 * Flink's adapter: jobs in a local environment, object reuse on. A hop is a rebalance, since Flink would otherwise call the sink from the source's
 * thread; stages behind it are chained, as Flink does by itself. Counts of words are kept in a map of the task behind keyBy, which is faster than
 * keyed state. "acked" is Flink's nearest guarantee: checkpoints, at least once.
 */
public final class Jobs {
    private static final long CHECKPOINT_EVERY_MS = 1000;

    private Jobs() {}

    public static void main(String[] args) {
        Adapter.main(args, workload -> {
            StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment((int) workload.number("parallel"));
            env.getConfig().enableObjectReuse();
            env.setBufferTimeout(workload.number("buffer_timeout_ms"));
            if (workload.acked) {
                env.enableCheckpointing(CHECKPOINT_EVERY_MS, CheckpointingMode.AT_LEAST_ONCE);
            }
            switch (workload.shape) {
                case "null" -> env.addSource(new Const()).rebalance().addSink(new Null());
                case "identity" -> env.addSource(new Const()).rebalance().map(new Identity<String>()).returns(String.class).addSink(new Null());
                case "hop" -> env.addSource(new Clock(workload)).rebalance().addSink(new Arrivals());
                case "chain" -> env.addSource(new Clock(workload)).rebalance().map(new Identity<Long>()).returns(Long.class).addSink(new Arrivals());
                case "words" -> {
                    DataStream<String> words = env.addSource(new Lines(workload)).flatMap(new Split()).returns(String.class);
                    words.keyBy(word -> word).addSink(new Count());
                }
                default -> throw new IllegalArgumentException("shape " + workload.shape);
            }
            env.executeAsync("rival");
        });
    }

    /** What all sources here share: they run until the process ends. */
    private abstract static class Source<T> extends RichParallelSourceFunction<T> {
        volatile boolean runs = true;

        @Override
        public void cancel() {
            runs = false;
        }
    }

    private static final class Const extends Source<String> {
        @Override
        public void run(SourceContext<String> context) {
            while (runs) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(Workload.TEXT);
                }
            }
        }
    }

    private static final class Clock extends Source<Long> {
        private final Workload workload;

        Clock(Workload workload) {
            this.workload = workload;
        }

        @Override
        public void run(SourceContext<Long> context) {
            Stamps stamps = new Stamps(workload);
            while (runs) {
                long stamp = stamps.due();
                if (stamp >= 0) {
                    synchronized (context.getCheckpointLock()) {
                        context.collect(stamp);
                    }
                } else {
                    Thread.onSpinWait();
                }
            }
        }
    }

    private static final class Lines extends Source<String> {
        private final Workload workload;

        Lines(Workload workload) {
            this.workload = workload;
        }

        @Override
        public void run(SourceContext<String> context) throws Exception {
            var task = getRuntimeContext().getTaskInfo();
            List<String> lines = workload.lines(task.getIndexOfThisSubtask(), task.getNumberOfParallelSubtasks());
            for (int next = 0; runs; next = next + 1 == lines.size() ? 0 : next + 1) {
                synchronized (context.getCheckpointLock()) {
                    context.collect(lines.get(next));
                }
            }
        }
    }

    private static final class Identity<T> implements MapFunction<T, T> {
        @Override
        public T map(T value) {
            return value;
        }
    }

    private static final class Split implements FlatMapFunction<String, String> {
        @Override
        public void flatMap(String line, org.apache.flink.util.Collector<String> out) {
            StringTokenizer words = new StringTokenizer(line);
            while (words.hasMoreTokens()) {
                out.collect(words.nextToken());
            }
        }
    }

    private static final class Null implements SinkFunction<String> {
        private transient int place;

        @Override
        public void invoke(String value, Context context) {
            place = place == 0 ? Meter.mine() : place;
            Meter.count(place);
        }
    }

    private static final class Arrivals implements SinkFunction<Long> {
        private transient int place;

        @Override
        public void invoke(Long stamp, Context context) {
            place = place == 0 ? Meter.mine() : place;
            Meter.arrived(stamp, place);
        }
    }

    private static final class Count implements SinkFunction<String> {
        private transient Map<String, long[]> counts;
        private transient int place;

        @Override
        public void invoke(String word, Context context) {
            if (counts == null) {
                counts = new HashMap<>();
                place = Meter.mine();
            }
            counts.computeIfAbsent(word, w -> new long[1])[0]++;
            Meter.count(place);
        }
    }
}
