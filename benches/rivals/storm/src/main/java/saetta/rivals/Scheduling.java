package saetta.rivals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.storm.Config;
import org.apache.storm.metric.StormMetricsRegistry;
import org.apache.storm.scheduler.Cluster;
import org.apache.storm.scheduler.ExecutorDetails;
import org.apache.storm.scheduler.INimbus;
import org.apache.storm.scheduler.IScheduler;
import org.apache.storm.scheduler.SchedulerAssignment;
import org.apache.storm.scheduler.SupervisorDetails;
import org.apache.storm.scheduler.TopologyDetails;
import org.apache.storm.scheduler.WorkerSlot;
import org.apache.storm.scheduler.resource.ResourceAwareScheduler;
import org.apache.storm.scheduler.resource.normalization.NormalizedResources;
import org.apache.storm.scheduler.resource.normalization.ResourceMetrics;
import org.apache.storm.scheduler.resource.strategies.scheduling.DefaultResourceAwareStrategy;
import org.apache.storm.topology.BoltDeclarer;
import org.apache.storm.topology.SpoutDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.tuple.Fields;
import org.apache.storm.utils.Utils;

/**
 * Storm's resource-aware scheduler on a recorded cluster (`text` names its file): a round is a cold one, everything to be placed, and what is
 * timed is the call of `schedule` alone. Executors and ackers are taken from the file as our own reader takes them; every topology asks for the
 * default strategy, all else is as Storm's defaults say.
 */
public final class Scheduling {
    private static final int FIRST_PORT = 6700;

    private Scheduling() {}

    public static void main(String[] args) {
        Adapter.rounds(args, workload -> {
            try {
                JsonNode file = new ObjectMapper().readTree(Path.of(workload.text).toFile());
                return () -> round(file);
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        });
    }

    private static Adapter.Round round(JsonNode file) {
        Map<String, Object> config = Utils.readDefaultConfig();
        StormMetricsRegistry metrics = new StormMetricsRegistry();
        Map<String, List<String>> racks = new HashMap<>();
        Map<String, SupervisorDetails> supervisors = supervisors(file.path("supervisors"), racks);
        Map<String, TopologyDetails> all = new HashMap<>();
        int launched = 0;
        for (JsonNode topology : file.path("topologies")) {
            TopologyDetails details = topology(topology, config, launched++);
            all.put(details.getId(), details);
        }
        var topologies = new org.apache.storm.scheduler.Topologies(all);
        Cluster cluster = new Cluster(new Nobody(), new ResourceMetrics(metrics), supervisors, new HashMap<>(), topologies, config);
        cluster.setNetworkTopography(racks);
        ResourceAwareScheduler scheduler = new ResourceAwareScheduler();
        scheduler.prepare(config, metrics);
        long wallNs = System.nanoTime();
        scheduler.schedule(topologies, cluster);
        wallNs = System.nanoTime() - wallNs;
        scheduler.cleanup();
        long placed = 0;
        for (SchedulerAssignment assignment : cluster.getAssignments().values()) {
            placed += assignment.getExecutors().size();
        }
        return new Adapter.Round(placed, wallNs);
    }

    private static Map<String, SupervisorDetails> supervisors(JsonNode list, Map<String, List<String>> racks) {
        Map<String, SupervisorDetails> supervisors = new HashMap<>();
        int i = 0;
        for (JsonNode like : list) {
            List<Number> ports = new ArrayList<>();
            for (int port = 0; port < like.path("slots").asInt(4); port++) {
                ports.add(FIRST_PORT + port);
            }
            Map<String, Double> total = new HashMap<>();
            total.put(Config.SUPERVISOR_CPU_CAPACITY, like.path("cpu_percent").asDouble());
            total.put(Config.SUPERVISOR_MEMORY_CAPACITY_MB, like.path("memory_mb").asDouble());
            total = NormalizedResources.RESOURCE_NAME_NORMALIZER.normalizedResourceMap(total);
            for (int j = 0; j < like.path("count").asInt(1); j++) {
                String id = String.format("supervisor-%03d-%04d", i, j);
                supervisors.put(id, new SupervisorDetails(id, id, null, ports, total));
                racks.computeIfAbsent(like.path("rack").asText(), rack -> new ArrayList<>()).add(id);
            }
            i++;
        }
        return supervisors;
    }

    private static TopologyDetails topology(JsonNode of, Map<String, Object> defaults, int launched) {
        String id = of.path("id").asText();
        int workers = of.path("workers").asInt(1);
        Map<String, Object> config = new HashMap<>(defaults);
        config.put(Config.TOPOLOGY_NAME, id);
        config.put(Config.TOPOLOGY_WORKERS, workers);
        config.put(Config.TOPOLOGY_PRIORITY, of.path("priority").asInt(29));
        config.put(Config.TOPOLOGY_SUBMITTER_USER, "recorded");
        config.put(Config.TOPOLOGY_WORKER_MAX_HEAP_SIZE_MB, of.path("max_heap_mb").asDouble(768));
        config.put(Config.TOPOLOGY_SCHEDULER_STRATEGY, DefaultResourceAwareStrategy.class.getName());
        config.put(Config.TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT, of.path("default_cpu_percent").asDouble(10));
        config.put(Config.TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB, of.path("default_onheap_mb").asDouble(128));
        config.put(Config.TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB, of.path("default_offheap_mb").asDouble(0));
        config.put(Config.TOPOLOGY_ACKER_CPU_PCORE_PERCENT, of.path("acker_cpu_percent").asDouble(10));
        config.put(Config.TOPOLOGY_ACKER_RESOURCES_ONHEAP_MEMORY_MB, of.path("acker_onheap_mb").asDouble(128));
        config.put(Config.TOPOLOGY_ACKER_RESOURCES_OFFHEAP_MEMORY_MB, 0.0);

        TopologyBuilder builder = new TopologyBuilder();
        Map<ExecutorDetails, String> executors = new HashMap<>();
        int task = 1;
        for (JsonNode component : of.path("components")) {
            int tasks = Math.max(1, component.path("tasks").asInt(1));
            int n = Math.min(tasks, Math.max(1, component.path("executors").isNumber() ? component.path("executors").asInt() : tasks));
            String name = component.path("id").asText();
            declare(builder, component, name, n, of.path("default_offheap_mb").asDouble(0));
            task = executors(executors, name, n, task);
        }
        executors(executors, "__acker", of.path("ackers").asInt(1), task);
        return new TopologyDetails(id, config, builder.createTopology(), workers, executors, launched, "recorded");
    }

    private static int executors(Map<ExecutorDetails, String> executors, String component, int n, int task) {
        for (int i = 0; i < n; i++, task++) {
            executors.put(new ExecutorDetails(task, task), component);
        }
        return task;
    }

    private static void declare(TopologyBuilder builder, JsonNode of, String name, int n, double offHeapMb) {
        if (of.path("kind").asText().equals("spout")) {
            SpoutDeclarer spout = builder.setSpout(name, new Topologies.Const(false), n);
            if (of.hasNonNull("cpu_percent")) {
                spout.setCPULoad(of.path("cpu_percent").asDouble());
            }
            if (of.hasNonNull("onheap_mb")) {
                spout.setMemoryLoad(of.path("onheap_mb").asDouble(), of.path("offheap_mb").asDouble(offHeapMb));
            }
            return;
        }
        BoltDeclarer bolt = builder.setBolt(name, new Topologies.Null(), n);
        if (of.hasNonNull("cpu_percent")) {
            bolt.setCPULoad(of.path("cpu_percent").asDouble());
        }
        if (of.hasNonNull("onheap_mb")) {
            bolt.setMemoryLoad(of.path("onheap_mb").asDouble(), of.path("offheap_mb").asDouble(offHeapMb));
        }
        for (JsonNode input : of.path("inputs")) {
            String from = input.path("from").asText();
            String stream = input.path("stream").asText("default");
            switch (input.path("grouping").asText()) {
                case "local_or_shuffle" -> bolt.localOrShuffleGrouping(from, stream);
                case "fields" -> bolt.fieldsGrouping(from, stream, new Fields("value"));
                case "all" -> bolt.allGrouping(from, stream);
                case "global" -> bolt.globalGrouping(from, stream);
                case "direct" -> bolt.directGrouping(from, stream);
                case "none" -> bolt.noneGrouping(from, stream);
                // A custom grouping is placed like a shuffle.
                default -> bolt.shuffleGrouping(from, stream);
            }
        }
    }

    /** A nimbus that is asked for nothing but names. */
    private static final class Nobody implements INimbus {
        @Override
        public void prepare(Map<String, Object> config, String localDir) {}

        @Override
        public Collection<WorkerSlot> allSlotsAvailableForScheduling(
                Collection<SupervisorDetails> supervisors, org.apache.storm.scheduler.Topologies topologies, Set<String> missing) {
            return List.of();
        }

        @Override
        public void assignSlots(org.apache.storm.scheduler.Topologies topologies, Map<String, Collection<WorkerSlot>> slots) {}

        @Override
        public String getHostName(Map<String, SupervisorDetails> supervisors, String node) {
            return supervisors.get(node).getHost();
        }

        @Override
        public IScheduler getForcedScheduler() {
            return null;
        }
    }
}
