package saetta.rivals;

import java.io.File;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.storm.StormSubmitter;
import org.apache.storm.testing.InProcessZookeeper;

/**
 * Storm's adapter in two worker processes: nimbus and a supervisor as processes of their own, as Storm's own scripts start them, which start the
 * workers; and the ZooKeeper that Storm's package holds, in this process. What is counted is counted in the workers (see {@link Meter}); CPU time is
 * that of the workers alone.
 */
public final class Daemons {
    private static final String NIMBUS = "org.apache.storm.daemon.nimbus.Nimbus";
    private static final String SUPERVISOR = "org.apache.storm.daemon.supervisor.Supervisor";
    private static final String WORKER = "org.apache.storm.daemon.worker.Worker";
    private static final int WORKERS = 2;
    private static final long WITHIN_MS = 90_000;
    private static final long LOOK_EVERY_MS = 100;

    private final Path dir = Path.of("").toAbsolutePath();
    private final Path meters = dir.resolve("meters");
    private final String heap = System.getProperty("saetta.heap", "2g");

    private Daemons() {}

    public static void main(String[] args) {
        Daemons daemons = new Daemons();
        Adapter.main(args, daemons::start, daemons::counted);
    }

    private void start(Workload workload) throws Exception {
        InProcessZookeeper zookeeper = new InProcessZookeeper();
        List<Integer> ports = freePorts(1 + WORKERS);
        String classPath = System.getProperty("java.class.path");
        Path jar = Path.of(classPath.split(File.pathSeparator)[0]);
        Files.createDirectories(meters);
        Path home = Files.createDirectories(dir.resolve("home"));
        // Where the supervisor looks for what workers are run by.
        Files.createSymbolicLink(home.resolve("lib-worker"), Path.of(classPath.split(File.pathSeparator)[1]).getParent());
        Files.createDirectories(home.resolve("log4j2"));
        try (var log = Daemons.class.getResourceAsStream("/log4j2.xml")) {
            Files.copy(log, home.resolve("log4j2/worker.xml"));
        }
        Path config = Files.createDirectories(home.resolve("conf")).resolve("storm.yaml");
        Files.writeString(config, String.join("\n",
                "storm.zookeeper.servers: [\"127.0.0.1\"]",
                "storm.zookeeper.port: " + zookeeper.getPort(),
                "storm.local.hostname: \"127.0.0.1\"",
                "storm.local.dir: \"" + dir.resolve("local") + "\"",
                "storm.log.dir: \"" + dir.resolve("logs") + "\"",
                "nimbus.seeds: [\"127.0.0.1\"]",
                "nimbus.thrift.port: " + ports.get(0),
                "supervisor.slots.ports: " + ports.subList(1, ports.size()),
                "worker.childopts: \"-Xms" + heap + " -Xmx" + heap + " -Dsaetta.meters=" + meters + "\"",
                "topology.worker.max.heap.size.mb: 8192.0",
                ""));
        daemon(NIMBUS, home, config, classPath);
        daemon(SUPERVISOR, home, config, classPath);

        System.setProperty("storm.conf.file", config.toString());
        System.setProperty("storm.jar", jar.toString());
        long end = System.currentTimeMillis() + WITHIN_MS;
        while (true) {
            try {
                StormSubmitter.submitTopology("rival", Topologies.config(workload), Topologies.of(workload));
                break;
            } catch (RuntimeException e) {
                // Nimbus does not answer yet.
                if (System.currentTimeMillis() > end) {
                    throw e;
                }
                Thread.sleep(LOOK_EVERY_MS);
            }
        }
        while (workers().size() < WORKERS || counted().tuples() == 0) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException(workers().size() + " workers and " + counted().tuples() + " tuples after " + WITHIN_MS + " ms");
            }
            Thread.sleep(LOOK_EVERY_MS);
        }
    }

    private void daemon(String main, Path home, Path config, String classPath) throws IOException {
        List<String> command = List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx256m",
                "-Dstorm.home=" + home, "-Dstorm.conf.file=" + config, "-Dstorm.log.dir=" + dir.resolve("logs"),
                "-Djava.io.tmpdir=" + System.getProperty("java.io.tmpdir"), "-cp", classPath, main);
        Process process = new ProcessBuilder(command).directory(dir.toFile())
                .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        Adapter.atEnd(() -> {
            // First who would start them again, then the workers.
            List<ProcessHandle> children = process.descendants().toList();
            process.destroyForcibly();
            children.forEach(ProcessHandle::destroyForcibly);
        });
    }

    /** The workers' own processes: not those that write their logs. */
    private static List<ProcessHandle> workers() {
        return ProcessHandle.current().descendants().filter(Daemons::isWorker).toList();
    }

    private static boolean isWorker(ProcessHandle process) {
        try {
            String line = Files.readString(Path.of("/proc", Long.toString(process.pid()), "cmdline"));
            return line.contains(WORKER) && !line.contains("org.apache.storm.LogWriter");
        } catch (IOException e) {
            return false;
        }
    }

    private Adapter.Counted counted() throws IOException {
        long tuples = 0;
        try (DirectoryStream<Path> files = Files.newDirectoryStream(meters)) {
            for (Path file : files) {
                byte[] bytes = Files.readAllBytes(file);
                tuples += bytes.length < Long.BYTES ? 0 : ByteBuffer.wrap(bytes).order(ByteOrder.BIG_ENDIAN).getLong();
            }
        }
        long cpuNs = 0;
        for (ProcessHandle worker : workers()) {
            cpuNs += worker.info().totalCpuDuration().map(java.time.Duration::toNanos).orElse(0L);
        }
        return new Adapter.Counted(tuples, cpuNs);
    }

    private static List<Integer> freePorts(int n) throws IOException {
        List<ServerSocket> held = new ArrayList<>();
        List<Integer> ports = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            ServerSocket socket = new ServerSocket(0);
            held.add(socket);
            ports.add(socket.getLocalPort());
        }
        for (ServerSocket socket : held) {
            socket.close();
        }
        return ports;
    }
}
