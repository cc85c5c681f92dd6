package saetta.rivals;

import org.apache.storm.LocalCluster;

/** Storm's adapter in one process: its own local cluster, whose workers are threads of this JVM. */
public final class Local {
    private Local() {}

    public static void main(String[] args) {
        Adapter.main(args, workload -> {
            LocalCluster cluster = new LocalCluster.Builder().withPortsPerSupervisor((int) workload.number("workers")).build();
            cluster.submitTopology("rival", Topologies.config(workload), Topologies.of(workload));
        });
    }
}
