package saetta.rivals;

/** When a source sends its next stamp: at a rate, by the time it was due; or, without one, as soon as the last has arrived. */
public final class Stamps {
    private final long periodNs;
    private long dueNs = System.nanoTime();
    private long sent;

    public Stamps(Workload workload) {
        periodNs = workload.ratePerSec == 0 ? 0 : 1_000_000_000L / workload.ratePerSec;
    }

    /** The stamp to send now, or -1. */
    public long due() {
        long now = System.nanoTime();
        if (periodNs == 0) {
            if (Meter.ARRIVED.get() != sent) {
                return -1;
            }
            sent++;
            return now;
        }
        if (now < dueNs) {
            return -1;
        }
        long due = dueNs;
        dueNs += periodNs;
        return due;
    }
}
