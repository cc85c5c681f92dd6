//! What only some hosts or plugins have: tables found by id, with `get_extension` of the host or of the plugin.
//!
//! An id ends in its version and is never renamed or used again; `EXTENSIONS.md` is the registry. A table lives as long as the process.

use crate::{Err, Round};
use core::ffi::{c_char, c_void};

/// Host: takes reasons. Its table is [`ExplainV1`].
pub const EXT_EXPLAIN: &str = "saetta.explain/1";
/// Host: measured rates are in the snapshot. Its table is [`StatsV1`].
pub const EXT_STATS: &str = "saetta.stats/1";
/// Plugin: tells its schema and its configuration in force. Its table is [`ConfigV1`].
pub const EXT_CONFIG: &str = "saetta.config/1";
/// Plugin: its memory outlives it. Its table is [`StateV1`].
pub const EXT_STATE: &str = "saetta.state/1";
/// Plugin: says which nodes are not to be used, before the scheduler runs. Its table is [`NodeHealthV1`].
pub const EXT_NODE_HEALTH: &str = "saetta.node_health/1";
/// Every id above.
pub const EXTENSIONS: &[&str] = &[EXT_EXPLAIN, EXT_STATS, EXT_CONFIG, EXT_STATE, EXT_NODE_HEALTH];

/// Most bytes of a saved state.
pub const STATE_BYTES_MAX: u64 = 1 << 20;
/// Most bytes of an explanation's text; more is cut.
pub const EXPLAIN_TEXT_BYTES_MAX: u64 = 256;
/// Most parts of a score; more are left out.
pub const SCORE_PARTS_MAX: u32 = 8;

/// Hands one reason to the host. `ctx` is [`Host::ctx`](crate::Host::ctx). Only inside a round; everything is copied.
pub type ExplainFn = unsafe extern "C" fn(ctx: *mut c_void, explanation: *const Explanation);
/// Writes the JSON schema of the configuration. 0 = done, [`E_NO_MEMORY`](crate::E_NO_MEMORY) = the room is too small, `len` says what it takes.
pub type SchemaFn = unsafe extern "C" fn(out: *mut Out) -> i32;
/// Writes the configuration in force, defaults filled in, as JSON. Returns as [`SchemaFn`].
pub type EffectiveFn = unsafe extern "C" fn(instance: *mut c_void, out: *mut Out) -> i32;
/// Writes what the instance wants to find again, at most [`STATE_BYTES_MAX`]. Called after a round. Returns as [`SchemaFn`].
pub type SaveFn = unsafe extern "C" fn(instance: *mut c_void, out: *mut Out) -> i32;
/// Gives it back, right after create; also what an older version of the plugin wrote. A failure means that it starts with nothing.
pub type RestoreFn = unsafe extern "C" fn(instance: *mut c_void, bytes: *const u8, len: u64, err: *mut Err) -> i32;
/// Judges the nodes before the round's scheduler sees them. Returns as schedule.
pub type HealthFn = unsafe extern "C" fn(instance: *mut c_void, round: *const Round, health: *mut Health, err: *mut Err) -> i32;

abi_struct! {
    /// Where a call writes bytes. Host memory; where `len` becomes more than `cap`, nothing was written and the host may ask again.
    Out = "saetta_out" {
        /// Bytes the host provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// Bytes go here.
        buf: *mut u8,
        /// Room in bytes.
        cap: u64,
        /// Bytes written, or what it would take.
        len: u64,
    }
}

abi_struct! {
    /// One term of a score.
    ScorePart = "saetta_score_part" {
        /// Its name, UTF-8.
        name: *const c_char,
        /// Its bytes.
        name_len: u64,
        /// In thousandths.
        value: i64,
    }
}

abi_struct! {
    /// Why an executor is in a slot, or in none. Several about one executor: the choice, and what else was looked at.
    Explanation = "saetta_explanation" {
        /// Bytes the plugin provides.
        struct_size: u32,
        /// Row in the executor table.
        exec: u32,
        /// Row in the slot table, or [`NONE`](crate::NONE) = about no slot.
        slot: u32,
        /// `WHY_*`.
        code: u32,
        /// What the code says it is, or [`NONE`](crate::NONE).
        arg: u32,
        /// Length of `parts`, at most [`SCORE_PARTS_MAX`].
        n_parts: u32,
        /// Larger is better, in thousandths.
        score: i64,
        /// What the score is made of; may be NULL.
        parts: *const ScorePart,
        /// UTF-8, at most [`EXPLAIN_TEXT_BYTES_MAX`]; may be NULL.
        text: *const c_char,
        /// Its bytes.
        text_len: u64,
    }
}

abi_struct! {
    /// [`EXT_EXPLAIN`].
    ExplainV1 = "saetta_explain_v1" {
        /// Bytes the host provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// See [`ExplainFn`].
        explain: Option<ExplainFn>,
    }
}

abi_struct! {
    /// [`EXT_STATS`]. That it is there says that rates come in the table of measured edges.
    StatsV1 = "saetta_stats_v1" {
        /// Bytes the host provides.
        struct_size: u32,
        /// Over how many seconds rates are averaged.
        window_s: u32,
    }
}

abi_struct! {
    /// [`EXT_CONFIG`].
    ConfigV1 = "saetta_config_v1" {
        /// Bytes the plugin provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// See [`SchemaFn`]; may be NULL.
        schema: Option<SchemaFn>,
        /// See [`EffectiveFn`].
        effective: Option<EffectiveFn>,
    }
}

abi_struct! {
    /// [`EXT_STATE`].
    StateV1 = "saetta_state_v1" {
        /// Bytes the plugin provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// See [`SaveFn`].
        save: Option<SaveFn>,
        /// See [`RestoreFn`].
        restore: Option<RestoreFn>,
    }
}

abi_struct! {
    /// The answer of [`HealthFn`], in host memory.
    Health = "saetta_health" {
        /// Bytes the host provides.
        struct_size: u32,
        /// Length of `flags_of_node`: rows of the node table.
        n_nodes: u32,
        /// `NODE_BLACKLISTED` and `NODE_GREYLISTED` of each node, pre-filled with what the snapshot says; other bits are not read.
        flags_of_node: *mut u32,
    }
}

abi_struct! {
    /// [`EXT_NODE_HEALTH`].
    NodeHealthV1 = "saetta_node_health_v1" {
        /// Bytes the plugin provides.
        struct_size: u32,
        /// 0.
        reserved: u32,
        /// See [`HealthFn`].
        health: Option<HealthFn>,
    }
}
