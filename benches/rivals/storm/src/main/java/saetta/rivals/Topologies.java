package saetta.rivals;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringTokenizer;
import org.apache.storm.Config;
import org.apache.storm.generated.StormTopology;
import org.apache.storm.spout.SpoutOutputCollector;
import org.apache.storm.task.OutputCollector;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.topology.base.BaseRichSpout;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Tuple;
import org.apache.storm.tuple.Values;

/** The workloads as Storm's users write them: rich spouts and bolts, values by reference, acks where they are asked for. */
final class Topologies {
    private Topologies() {}

    /** The topology of a shape. */
    static StormTopology of(Workload workload) {
        TopologyBuilder builder = new TopologyBuilder();
        int parallel = (int) workload.number("parallel");
        switch (workload.shape) {
            case "null" -> {
                builder.setSpout("source", new Const(workload.acked));
                builder.setBolt("null", new Null()).shuffleGrouping("source");
            }
            case "identity" -> {
                builder.setSpout("source", new Const(workload.acked));
                builder.setBolt("identity", new Identity(workload.acked)).shuffleGrouping("source");
                builder.setBolt("null", new Null()).shuffleGrouping("identity");
            }
            case "hop" -> {
                builder.setSpout("source", new Clock(workload));
                builder.setBolt("null", new Arrivals()).shuffleGrouping("source");
            }
            case "chain" -> {
                builder.setSpout("source", new Clock(workload));
                builder.setBolt("identity", new Identity(false)).shuffleGrouping("source");
                builder.setBolt("null", new Arrivals()).shuffleGrouping("identity");
            }
            case "words" -> {
                builder.setSpout("source", new Lines(workload), parallel);
                builder.setBolt("split", new Split(workload.acked), parallel).shuffleGrouping("source");
                builder.setBolt("count", new Count(), parallel).fieldsGrouping("split", new Fields("value"));
            }
            default -> throw new IllegalArgumentException("shape " + workload.shape);
        }
        return builder.createTopology();
    }

    /** Storm's configuration for the settings of a point. */
    static Config config(Workload workload) {
        Config config = new Config();
        config.setNumWorkers((int) workload.number("workers"));
        config.setNumAckers((int) workload.number("ackers"));
        config.put(Config.TOPOLOGY_PRODUCER_BATCH_SIZE, workload.number("batch"));
        config.put(Config.TOPOLOGY_TRANSFER_BATCH_SIZE, workload.number("batch"));
        if (workload.acked) {
            config.setMaxSpoutPending((int) workload.number("pending"));
        }
        // "progressive" is the default; "spin" parks for no time, which Storm's documentation calls a busy wait.
        if (workload.word("wait").equals("spin")) {
            String park = "org.apache.storm.policy.WaitStrategyPark";
            config.put(Config.TOPOLOGY_SPOUT_WAIT_STRATEGY, park);
            config.put(Config.TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC, 0);
            config.put(Config.TOPOLOGY_BOLT_WAIT_STRATEGY, park);
            config.put(Config.TOPOLOGY_BOLT_WAIT_PARK_MICROSEC, 0);
            config.put(Config.TOPOLOGY_BACKPRESSURE_WAIT_STRATEGY, park);
            config.put(Config.TOPOLOGY_BACKPRESSURE_WAIT_PARK_MICROSEC, 0);
        }
        return config;
    }

    /** What all spouts here share. */
    private abstract static class Source extends BaseRichSpout {
        private final boolean acked;
        private long id;
        private transient SpoutOutputCollector collector;

        Source(boolean acked) {
            this.acked = acked;
        }

        @Override
        public void open(Map<String, Object> config, TopologyContext context, SpoutOutputCollector collector) {
            this.collector = collector;
        }

        void emit(Object value) {
            if (acked) {
                collector.emit(new Values(value), id++);
            } else {
                collector.emit(new Values(value));
            }
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("value"));
        }
    }

    /** The same text for ever. */
    static final class Const extends Source {
        Const(boolean acked) {
            super(acked);
        }

        @Override
        public void nextTuple() {
            emit(Workload.TEXT);
        }
    }

    /** A stamp when one is due. */
    private static final class Clock extends Source {
        private final Workload workload;
        private transient Stamps stamps;

        Clock(Workload workload) {
            super(false);
            this.workload = workload;
        }

        @Override
        public void nextTuple() {
            if (stamps == null) {
                stamps = new Stamps(workload);
            }
            long stamp = stamps.due();
            if (stamp >= 0) {
                emit(stamp);
            }
        }
    }

    /** The lines of the text, over and over; each task has its part. */
    private static final class Lines extends Source {
        private final Workload workload;
        private transient List<String> lines;
        private int next;

        Lines(Workload workload) {
            super(workload.acked);
            this.workload = workload;
        }

        @Override
        public void open(Map<String, Object> config, TopologyContext context, SpoutOutputCollector collector) {
            super.open(config, context, collector);
            try {
                lines = workload.lines(context.getThisTaskIndex(), context.getComponentTasks(context.getThisComponentId()).size());
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        @Override
        public void nextTuple() {
            emit(lines.get(next));
            next = next + 1 == lines.size() ? 0 : next + 1;
        }
    }

    /** What all bolts here share. */
    private abstract static class Stage extends BaseRichBolt {
        transient OutputCollector collector;
        transient int place;

        @Override
        public void prepare(Map<String, Object> config, TopologyContext context, OutputCollector collector) {
            this.collector = collector;
            place = Meter.mine();
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {
            declarer.declare(new Fields("value"));
        }
    }

    static final class Null extends Stage {
        @Override
        public void execute(Tuple tuple) {
            tuple.getValue(0);
            Meter.count(place);
            collector.ack(tuple);
        }
    }

    private static final class Identity extends Stage {
        private final boolean acked;

        Identity(boolean acked) {
            this.acked = acked;
        }

        @Override
        public void execute(Tuple tuple) {
            if (acked) {
                collector.emit(tuple, new Values(tuple.getValue(0)));
            } else {
                collector.emit(new Values(tuple.getValue(0)));
            }
            collector.ack(tuple);
        }
    }

    private static final class Arrivals extends Stage {
        @Override
        public void execute(Tuple tuple) {
            Meter.arrived(tuple.getLong(0), place);
            collector.ack(tuple);
        }
    }

    private static final class Split extends Stage {
        private final boolean acked;

        Split(boolean acked) {
            this.acked = acked;
        }

        @Override
        public void execute(Tuple tuple) {
            StringTokenizer words = new StringTokenizer(tuple.getString(0));
            while (words.hasMoreTokens()) {
                if (acked) {
                    collector.emit(tuple, new Values(words.nextToken()));
                } else {
                    collector.emit(new Values(words.nextToken()));
                }
            }
            collector.ack(tuple);
        }
    }

    private static final class Count extends Stage {
        private final Map<String, long[]> counts = new HashMap<>();

        @Override
        public void execute(Tuple tuple) {
            counts.computeIfAbsent(tuple.getString(0), word -> new long[1])[0]++;
            Meter.count(place);
            collector.ack(tuple);
        }
    }
}
