//! What each floor reached on the two-core machine the targets were set on, by host class. A run whose floor is over a fifth worse is void.
//!
//! Medians of at least five interleaved samples. `None` where the class was not measured.

use saetta_harness::HostClass;

/// [`crate::ring_throughput`], million items a second.
#[must_use]
pub fn ring_throughput_millions(class: HostClass) -> Option<f64> {
    by_class(class, 125.0, 30.0)
}

/// [`crate::ring_round_trip`], p50 in ns.
#[must_use]
pub fn ring_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    by_class(class, 160.0, 701.0)
}

/// [`crate::ring_round_trip`], p99 in ns.
#[must_use]
pub fn ring_round_trip_p99_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 275.0)
}

/// [`crate::flag_ring_round_trip`], p50 in ns.
#[must_use]
pub fn flag_ring_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    by_class(class, 130.0, 381.0)
}

/// [`crate::same_thread_ns`], ns a tuple. One core: the same in every class.
#[must_use]
pub fn same_thread_ns(_: HostClass) -> Option<f64> {
    Some(18.5)
}

/// [`crate::same_thread_in_place_ns`], ns a tuple.
#[must_use]
pub fn same_thread_in_place_ns(_: HostClass) -> Option<f64> {
    Some(9.1)
}

/// [`crate::futex_wake`], p50 in ns.
#[must_use]
pub fn futex_wake_p50_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 30_000.0)
}

/// [`crate::word_count_pipe`] of 100 MB of `saetta_harness::zipf`, million words a second.
#[must_use]
pub fn word_count_pipe_millions(class: HostClass) -> Option<f64> {
    only_ccx(class, 75.0)
}

/// [`crate::word_count_keyed`] of the same text, million words a second.
#[must_use]
pub fn word_count_keyed_millions(class: HostClass) -> Option<f64> {
    only_ccx(class, 70.0)
}

/// [`crate::shared_memory_round_trip`], p50 in ns.
#[must_use]
pub fn shared_memory_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 180.0)
}

/// [`crate::shared_memory_round_trip`], p99 in ns.
#[must_use]
pub fn shared_memory_round_trip_p99_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 240.0)
}

/// [`crate::shared_memory_stream`], million messages a second.
#[must_use]
pub fn shared_memory_stream_millions(class: HostClass) -> Option<f64> {
    only_ccx(class, 55.1)
}

/// [`crate::uring_round_trip`], p50 in ns.
#[must_use]
pub fn uring_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 12_000.0)
}

/// [`crate::uring_round_trip`], p99 in ns.
#[must_use]
pub fn uring_round_trip_p99_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 17_000.0)
}

/// [`crate::uring_stream`], million messages a second.
#[must_use]
pub fn uring_stream_millions(class: HostClass) -> Option<f64> {
    only_ccx(class, 27.0)
}

/// [`crate::spin_round_trip`], p50 in ns.
#[must_use]
pub fn spin_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 8_000.0)
}

/// [`crate::spin_round_trip`], p99 in ns.
#[must_use]
pub fn spin_round_trip_p99_ns(class: HostClass) -> Option<f64> {
    only_ccx(class, 10_900.0)
}

fn only_ccx(class: HostClass, value: f64) -> Option<f64> {
    (class == HostClass::Ccx).then_some(value)
}

fn by_class(class: HostClass, ccx: f64, cross_ccx: f64) -> Option<f64> {
    match class {
        HostClass::Ccx => Some(ccx),
        HostClass::CrossCcx => Some(cross_ccx),
        HostClass::Smt | HostClass::Mixed | HostClass::Any => None,
    }
}
