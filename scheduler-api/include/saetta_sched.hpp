/* saetta_sched.hpp - the scheduler ABI of Saetta in C++17: header-only, above saetta_sched.h.
 *
 * Before: a host calls the exported function. After: your schedule() has filled the plan. An exception that leaves your code
 * becomes an error code with its text; none crosses the boundary. A view of the snapshot is valid inside schedule() only.
 *
 *     class Mine {
 *     public:
 *         explicit Mine(const saetta::Create &args);                                // throws saetta::Error for a wrong configuration
 *         saetta::Verdict schedule(const saetta::Round &round, saetta::Plan &plan); // writing nothing keeps everything
 *     };
 *     SAETTA_EXPORT(Mine, "{\"id\":\"mine\",\"version\":\"1.0.0\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}")
 *
 * Build with -fvisibility=hidden -static-libstdc++ -static-libgcc, and never with -ffast-math.
 */
#ifndef SAETTA_SCHED_HPP
#define SAETTA_SCHED_HPP

#include "saetta_sched.h"

#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace saetta {

/* What the author throws: a code of the ABI and one line for people. */
class Error : public std::runtime_error {
public:
    Error(int32_t code, const std::string &text) : std::runtime_error(text), code_(code < 0 ? code : SAETTA_E_INTERNAL) {}
    int32_t code() const noexcept { return code_; }

private:
    int32_t code_;
};

/* Result of a round that did not fail. */
enum class Verdict : int32_t { Done = SAETTA_OK, NoChange = SAETTA_OK_NO_CHANGE };

/* What an instance is made from; texts are valid in the constructor only. */
struct Create {
    std::string_view config; /* JSON */
    std::string_view name;
    std::string_view profile;
};

/* Rows of one table, found through its stride. A row is a copy: what an older host does not have reads as zero. */
template <class Row> class Table {
public:
    class Iterator {
    public:
        Iterator(const Table &table, uint32_t at) : table_(&table), at_(at) {}
        Row operator*() const { return (*table_)[at_]; }
        Iterator &operator++()
        {
            at_++;
            return *this;
        }
        bool operator!=(const Iterator &other) const { return at_ != other.at_; }

    private:
        const Table *table_;
        uint32_t at_;
    };

    Table(const saetta_round &round, uint32_t id) : round_(&round), dir_(saetta_table(&round, id)) {}
    uint32_t size() const noexcept { return saetta_count(dir_); }
    bool empty() const noexcept { return size() == 0; }
    /* Throws std::out_of_range beyond the end. */
    Row operator[](uint32_t index) const
    {
        if (index >= size())
            throw std::out_of_range("row " + std::to_string(index) + " of " + std::to_string(size()));
        Row row;
        saetta_read(round_, dir_, index, &row, sizeof row);
        return row;
    }
    Iterator begin() const { return Iterator(*this, 0); }
    Iterator end() const { return Iterator(*this, size()); }

private:
    const saetta_round *round_;
    const saetta_dir *dir_;
};

/* The cluster. Throws from its constructor when the block is no snapshot, or one this header does not understand. */
class Snapshot {
public:
    explicit Snapshot(const saetta_round &round) : round_(&round)
    {
        if (int32_t code = saetta_check(&round))
            throw Error(code, code == SAETTA_E_UNSUPPORTED
                                  ? "the snapshot needs features this plugin does not know; build it against the host's header"
                                  : "the block is no snapshot");
    }

    /* Any table by its number, with the struct the header states for it. */
    template <class Row> Table<Row> table(uint32_t id) const { return Table<Row>(*round_, id); }
    Table<saetta_kind_row> kinds() const { return table<saetta_kind_row>(SAETTA_TABLE_RESOURCE_KINDS); }
    Table<saetta_rack> racks() const { return table<saetta_rack>(SAETTA_TABLE_RACKS); }
    Table<saetta_host_row> hosts() const { return table<saetta_host_row>(SAETTA_TABLE_HOSTS); }
    Table<saetta_node_row> nodes() const { return table<saetta_node_row>(SAETTA_TABLE_NODES); }
    Table<saetta_slot_row> slots() const { return table<saetta_slot_row>(SAETTA_TABLE_SLOTS); }
    Table<saetta_topology_row> topologies() const { return table<saetta_topology_row>(SAETTA_TABLE_TOPOLOGIES); }
    Table<saetta_component_row> components() const { return table<saetta_component_row>(SAETTA_TABLE_COMPONENTS); }
    Table<saetta_edge_row> edges() const { return table<saetta_edge_row>(SAETTA_TABLE_EDGES); }
    Table<saetta_executor_row> executors() const { return table<saetta_executor_row>(SAETTA_TABLE_EXECUTORS); }
    Table<saetta_user_row> users() const { return table<saetta_user_row>(SAETTA_TABLE_USERS); }
    Table<saetta_core_row> cores() const { return table<saetta_core_row>(SAETTA_TABLE_CORES); }
    Table<saetta_slot_core_row> slot_cores() const { return table<saetta_slot_core_row>(SAETTA_TABLE_SLOT_CORES); }

    /* Of SAETTA_TABLE_NODE_TOTAL, NODE_AVAIL, COMP_REQUEST or USER_GUARANTEE; 0 where the host states none. */
    int64_t amount(uint32_t table, uint32_t index, uint32_t kind) const
    {
        return saetta_amount(round_, saetta_table(round_, table), index, kind);
    }
    std::string_view text(saetta_str text) const { return std::string_view(saetta_text(round_, text), text.len); }

private:
    const saetta_round *round_;
};

/* What is asked in one round. */
class Round {
public:
    Round(const saetta_host &host, const saetta_round &round) : snapshot(round), host_(&host), round_(&round) {}

    const Snapshot snapshot;
    uint32_t reason() const noexcept { return round_->reason; }
    uint64_t id() const noexcept { return round_->round_id; }
    /* The only permitted randomness. */
    uint64_t seed() const noexcept { return round_->seed; }
    /* Running executors that may move; SAETTA_NONE = no limit. */
    uint32_t max_moves() const noexcept { return round_->max_moves; }
    bool may_preempt() const noexcept { return round_->flags & SAETTA_ROUND_MAY_PREEMPT; }
    /* True when the best plan so far should be returned. Cheap. */
    bool should_stop() const noexcept { return round_->should_stop && round_->should_stop(round_->ctx); }
    /* One line into the leader's log. */
    void log(int32_t level, std::string_view text) const noexcept
    {
        if (host_->log)
            host_->log(host_->ctx, level, "scheduler", 9, text.data(), text.size());
    }

private:
    const saetta_host *host_;
    const saetta_round *round_;
};

/* The answer: the host's own arrays, filled with the current placement. Throws std::out_of_range for what is not in the snapshot. */
class Plan {
public:
    Plan(saetta_plan &plan, const Snapshot &snapshot)
        : plan_(&plan), n_slots_(snapshot.slots().size()), n_cores_(snapshot.cores().size())
    {
    }

    /* Slot of an executor by the plan so far. */
    std::optional<uint32_t> slot_of(uint32_t exec) const
    {
        uint32_t slot = plan_->slot_of_exec[below(exec, plan_->n_execs, "executor")];
        return slot == SAETTA_NONE ? std::nullopt : std::optional<uint32_t>(slot);
    }
    void place(uint32_t exec, uint32_t slot)
    {
        plan_->slot_of_exec[below(exec, plan_->n_execs, "executor")] = below(slot, n_slots_, "slot");
    }
    void free(uint32_t exec) { plan_->slot_of_exec[below(exec, plan_->n_execs, "executor")] = SAETTA_NONE; }
    /* SAETTA_OUT_*; a topology whose slots were changed needs one that is not SAETTA_OUT_KEEP. */
    void outcome(uint32_t topology, uint32_t outcome) { plan_->outcome[below(topology, plan_->n_topologies, "topology")] = outcome; }
    /* False = the host takes no cores, and core() does nothing. */
    bool takes_cores() const noexcept { return plan_->struct_size >= sizeof(saetta_plan) && plan_->core_of_exec; }
    /* Puts an executor on one of its slot's cores. */
    void core(uint32_t exec, uint32_t core)
    {
        if (takes_cores())
            plan_->core_of_exec[below(exec, plan_->n_execs, "executor")] = below(core, n_cores_, "core");
    }

private:
    static uint32_t below(uint32_t index, uint32_t n, const char *what)
    {
        if (index >= n)
            throw std::out_of_range(std::string(what) + " " + std::to_string(index) + " of " + std::to_string(n));
        return index;
    }

    saetta_plan *plan_;
    uint32_t n_slots_;
    uint32_t n_cores_;
};

/* What SAETTA_EXPORT is made of. */
namespace detail {

/* Runs f; whatever it throws becomes an error code and its text. */
template <class F> int32_t guarded(saetta_err *err, F f) noexcept
{
    try {
        return f();
    } catch (const Error &e) {
        return saetta_fail(err, e.code(), e.what());
    } catch (const std::bad_alloc &) {
        return saetta_fail(err, SAETTA_E_NO_MEMORY, "out of memory");
    } catch (const std::exception &e) {
        return saetta_fail(err, SAETTA_E_INTERNAL, e.what());
    } catch (...) {
        return saetta_fail(err, SAETTA_E_INTERNAL, "an exception that is no std::exception");
    }
}

template <class S> int32_t create(const saetta_create *args, void **instance, saetta_err *err) noexcept
{
    return guarded(err, [&] {
        *instance = new S(Create{{args->config, args->config_len}, {args->name, args->name_len}, {args->profile, args->profile_len}});
        return SAETTA_OK;
    });
}

template <class S> void destroy(void *instance) noexcept
{
    delete static_cast<S *>(instance);
}

template <class S> int32_t schedule(const saetta_host *host, void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err) noexcept
{
    return guarded(err, [&] {
        const Round view(*host, *round);
        Plan answer(*plan, view.snapshot);
        return static_cast<int32_t>(static_cast<S *>(instance)->schedule(view, answer));
    });
}

/* The ELF note: sizes, type, owner, then the manifest without its NUL, padded to 4. */
template <size_t N> struct Note {
    uint32_t name_len = 12, desc_len = N - 1, type = 1;
    char name[12] = "SAETTASCHED";
    char desc[(N + 2) / 4 * 4] = {};
    constexpr explicit Note(const char (&json)[N])
    {
        for (size_t i = 0; i + 1 < N; i++)
            desc[i] = json[i];
    }
};

} // namespace detail
} // namespace saetta

/* Exports a scheduler with its manifest (JSON text). Once per plugin, at file scope, outside of any namespace. */
#define SAETTA_EXPORT(Type, json)                                                                                                        \
    namespace {                                                                                                                          \
    __attribute__((section(".note.saetta.sched"), used, aligned(4))) constexpr ::saetta::detail::Note<sizeof(json)> saetta_manifest_note(json); \
    const saetta_host *saetta_the_host;                                                                                                  \
    int32_t saetta_schedule_call(void *instance, const saetta_round *round, saetta_plan *plan, saetta_err *err)                          \
    {                                                                                                                                    \
        return ::saetta::detail::schedule<Type>(saetta_the_host, instance, round, plan, err);                                            \
    }                                                                                                                                    \
    const void *saetta_no_extension(const char *, uint64_t)                                                                              \
    {                                                                                                                                    \
        return nullptr;                                                                                                                  \
    }                                                                                                                                    \
    }                                                                                                                                    \
    extern "C" int32_t saetta_scheduler_v1(const saetta_host *host, saetta_plugin *plugin)                                               \
    {                                                                                                                                    \
        if (host->struct_size < sizeof(saetta_host))                                                                                     \
            return SAETTA_E_UNSUPPORTED;                                                                                                 \
        saetta_the_host = host;                                                                                                          \
        saetta_plugin mine = {};                                                                                                         \
        mine.struct_size = plugin->struct_size < sizeof mine ? plugin->struct_size : static_cast<uint32_t>(sizeof mine);                 \
        mine.abi_major = SAETTA_ABI_MAJOR;                                                                                               \
        mine.abi_minor = SAETTA_ABI_MINOR;                                                                                               \
        mine.create = ::saetta::detail::create<Type>;                                                                                    \
        mine.destroy = ::saetta::detail::destroy<Type>;                                                                                  \
        mine.schedule = saetta_schedule_call;                                                                                            \
        mine.get_extension = saetta_no_extension;                                                                                        \
        __builtin_memcpy(plugin, &mine, mine.struct_size);                                                                               \
        return SAETTA_OK;                                                                                                                \
    }                                                                                                                                    \
    static_assert(true, "")

#endif
