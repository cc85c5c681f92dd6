//! The cases of joined pairs once more, under TLS, over io_uring and over epoll.
//!
//! Left out is what TLS is not meant to keep: that nothing is copied, which call sends what, and cases of a thousand handshakes.

use crate::harness::Kind;
use crate::{delivery, ends, faults, limits, rules, time};

const LEFT_OUT: [&str; 9] = [
    "nothing_that_fits_a_segment_is_copied",
    "a_frame_beyond_a_segment_arrives_whole",
    "a_wait_ends_by_its_time",
    "five_hundred_and_twelve_connections_work_and_one_more_is_refused",
    "c06_five_hundred_operations_completing_at_once_are_all_seen",
    "f64_places_are_used_again_a_thousand_times",
    "whatever_ends_a_link_nothing_comes_twice_and_the_loss_is_exact",
    "c01_a_late_completion_never_reaches_the_next_link_of_a_place",
    "c03_every_completion_is_counted_and_every_place_freed",
];

fn run(kind: Kind) {
    for (name, case) in [delivery::ON_ALL, limits::ON_ALL, ends::ON_ALL, time::ON_ALL, faults::ON_ALL, rules::ON_ALL].concat() {
        if !LEFT_OUT.contains(&name) {
            println!("{name}");
            case(kind);
        }
    }
}

#[test]
fn all_cases_pass_under_tls_over_io_uring() {
    run(Kind::Tls);
}

#[test]
fn all_cases_pass_under_tls_over_epoll() {
    run(Kind::TlsEpoll);
}
