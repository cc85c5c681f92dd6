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
    match class {
        HostClass::Ccx => Some(275.0),
        _ => None,
    }
}

/// [`crate::flag_ring_round_trip`], p50 in ns.
#[must_use]
pub fn flag_ring_round_trip_p50_ns(class: HostClass) -> Option<f64> {
    by_class(class, 130.0, 381.0)
}

fn by_class(class: HostClass, ccx: f64, cross_ccx: f64) -> Option<f64> {
    match class {
        HostClass::Ccx => Some(ccx),
        HostClass::CrossCcx => Some(cross_ccx),
        HostClass::Smt | HostClass::Mixed | HostClass::Any => None,
    }
}
