/* @NAME@: a scheduler plugin of Saetta.
 *
 * Before: nimbus packed the cluster. After: the plan says where each executor runs.
 * The rule to begin with: what runs stays; each topology takes free slots up to the workers it wants; an executor without a slot
 * goes to the worker of its topology that holds fewest. Change choose_worker and claim_workers to yours.
 */
#include "saetta_sched.hpp"

#include <vector>

namespace {

class Scheduler {
public:
    explicit Scheduler(const saetta::Create &) {}

    saetta::Verdict schedule(const saetta::Round &round, saetta::Plan &plan)
    {
        std::vector<Worker> workers;
        for (saetta_slot_row slot : round.snapshot.slots())
            workers.push_back({slot.topology, 0, (slot.flags & SAETTA_SLOT_ASSIGNABLE) != 0});
        const auto topologies = round.snapshot.topologies();
        for (uint32_t t = 0; t < topologies.size() && !round.should_stop(); t++) {
            const saetta_topology_row topology = topologies[t];
            if (topology.flags & SAETTA_TOPO_SCHEDULE)
                place(plan, workers, t, topology);
        }
        return saetta::Verdict::Done;
    }

private:
    /* What schedule remembers of a slot. */
    struct Worker {
        uint32_t topology; /* row of the topology that has the slot by the plan so far, or SAETTA_NONE */
        uint32_t n_execs;  /* executors of it there, by the plan so far */
        bool assignable;   /* whether something new may be placed there */
    };

    /* Gives a topology free slots until it has the workers it wants, at most n_new more. */
    static void claim_workers(std::vector<Worker> &workers, uint32_t topology, uint32_t wanted, uint32_t n_new)
    {
        uint32_t n_workers = 0;
        for (const Worker &w : workers)
            n_workers += w.topology == topology;
        for (Worker &w : workers) {
            if (n_workers < wanted && n_new > 0 && w.topology == SAETTA_NONE && w.assignable) {
                w.topology = topology;
                n_workers++;
                n_new--;
            }
        }
    }

    /* The topology's worker that holds fewest executors, or SAETTA_NONE. */
    static uint32_t choose_worker(const std::vector<Worker> &workers, uint32_t topology)
    {
        uint32_t best = SAETTA_NONE;
        for (uint32_t s = 0; s < workers.size(); s++) {
            if (workers[s].topology == topology && workers[s].assignable && (best == SAETTA_NONE || workers[s].n_execs < workers[best].n_execs))
                best = s;
        }
        return best;
    }

    static void place(saetta::Plan &plan, std::vector<Worker> &workers, uint32_t t, const saetta_topology_row &topology)
    {
        std::vector<uint32_t> unplaced;
        for (uint32_t e = topology.first_exec; e < topology.first_exec + topology.n_execs; e++) {
            if (auto slot = plan.slot_of(e))
                workers.at(*slot).n_execs++;
            else
                unplaced.push_back(e);
        }
        if (unplaced.empty())
            return;
        claim_workers(workers, t, topology.workers_wanted, static_cast<uint32_t>(unplaced.size()));
        uint32_t n_left = static_cast<uint32_t>(unplaced.size());
        for (uint32_t e : unplaced) {
            const uint32_t s = choose_worker(workers, t);
            if (s == SAETTA_NONE)
                break;
            plan.place(e, s);
            workers[s].n_execs++;
            n_left--;
        }
        if (n_left == 0)
            plan.outcome(t, SAETTA_OUT_SCHEDULED);
        else
            plan.outcome(t, n_left == topology.n_execs ? SAETTA_OUT_UNSCHEDULABLE : SAETTA_OUT_PARTIAL);
    }
};

} // namespace

SAETTA_EXPORT(Scheduler,
              "{\"id\":\"@NAME@\",\"version\":\"0.1.0\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0},\"built\":\"c++\"}");
