/* An exception inside the wrapper's guard: an error code with its text. Caught by answers-without-error. */
#include "saetta_sched.hpp"

struct Throws {
    explicit Throws(const saetta::Create &) {}
    saetta::Verdict schedule(const saetta::Round &, saetta::Plan &) { throw std::runtime_error("no rack is near"); }
};

SAETTA_EXPORT(Throws, "{\"id\":\"caught\",\"version\":\"1\",\"abi\":{\"major\":1,\"minor\":0,\"min_host_minor\":0}}");
