package saetta.rivals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** One workload as the harness gives it: see `adapter/src/lib.rs`, whose fields these are, and the settings of this rival. */
public final class Workload implements Serializable {
    /** The text of a small tuple. */
    public static final String TEXT = "twenty bytes of text";

    public final String shape;
    public final boolean acked;
    public final long ratePerSec;
    public final String text;
    public final long warmUpMs;
    public final long windowMs;
    private final String settings;

    private Workload(JsonNode node) {
        shape = node.path("shape").asText();
        acked = node.path("acked").asBoolean();
        ratePerSec = node.path("rate_per_sec").asLong();
        text = node.path("text").asText();
        warmUpMs = node.path("warm_up_ms").asLong();
        windowMs = node.path("window_ms").asLong();
        settings = node.path("settings").toString();
    }

    /** The one in the only argument. */
    public static Workload of(String[] args) throws IOException {
        if (args.length != 1) {
            throw new IllegalArgumentException("name a workload, as JSON, as the only argument");
        }
        return new Workload(new ObjectMapper().readTree(args[0]));
    }

    /** A number among the settings; they are all there. */
    public long number(String name) {
        return setting(name).asLong();
    }

    /** A word among the settings. */
    public String word(String name) {
        return setting(name).asText();
    }

    private JsonNode setting(String name) {
        try {
            JsonNode found = new ObjectMapper().readTree(settings).path(name);
            if (found.isMissingNode()) {
                throw new IllegalArgumentException("no setting " + name + " in " + settings);
            }
            return found;
        } catch (IOException e) {
            throw new IllegalArgumentException(settings, e);
        }
    }

    /** The lines of the text, part i of n, dealt in turn. */
    public List<String> lines(int i, int n) throws IOException {
        List<String> mine = new ArrayList<>();
        int at = 0;
        for (String line : Files.readAllLines(Path.of(text))) {
            if (at++ % n == i) {
                mine.add(line);
            }
        }
        return mine;
    }
}
