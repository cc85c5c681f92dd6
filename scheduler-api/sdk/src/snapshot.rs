//! The cluster as one block of bytes: a reader that trusts nothing, and the writer the host and tests use.
//!
//! Before: `host/src/pack.rs` turned the model into rows. After: a scheduler walks typed rows by index.
//! Every row is found through the table's stride, so a newer host's longer rows read the same.
//! A reader checks the directory once ([`Snapshot::new`], O(tables)); a row read is a bounds-checked copy of a few words.

use saetta_abi::{self as abi, Row};
use std::marker::PhantomData;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into an array.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}
ids!(
    /// Row of the host table.
    HostId,
    /// Row of the node table.
    NodeId,
    /// Row of the slot table.
    SlotId,
    /// Row of the topology table.
    TopoId,
    /// Row of the component table.
    CompId,
    /// Row of the executor table.
    ExecId
);

/// Why a block is not a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It breaks a layout rule: a bug of the host, or bytes that are no snapshot.
    #[error("snapshot is malformed: {0}")]
    Malformed(&'static str),
    /// It needs features this version does not know: build the plugin against the host's version.
    #[error("snapshot needs features {0:#x} that this plugin does not know; build it against the host's version")]
    Unsupported(u64),
}

/// One table as the directory gives it.
#[derive(Debug, Clone, Copy, Default)]
struct Table {
    /// `off + count * stride` is inside the block.
    off: usize,
    count: usize,
    stride: usize,
}

/// Rows of one table.
#[derive(Clone, Copy)]
pub struct Rows<'a, R> {
    bytes: &'a [u8],
    stride: usize,
    count: usize,
    kind: PhantomData<R>,
}

impl<'a, R: Row> Rows<'a, R> {
    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// One row. Panics beyond the end.
    pub fn get(&self, index: usize) -> R {
        assert!(index < self.count, "row {index} of {}", self.count);
        R::read(&self.bytes[index * self.stride..(index + 1) * self.stride])
    }
    /// All rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = R> + 'a {
        let (bytes, stride) = (self.bytes, self.stride);
        (0..self.count).map(move |i| R::read(&bytes[i * stride..(i + 1) * stride]))
    }
}

const TABLES_KNOWN: usize = 18;

/// A checked view: every table lies inside the block, every row reference inside its table.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    bytes: &'a [u8],
    header: abi::Header,
    tables: [Table; TABLES_KNOWN],
}

impl<'a> Snapshot<'a> {
    /// Checks a block. O(tables + rows).
    pub fn new(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        use SnapshotError::Malformed as Bad;
        if bytes.len() < abi::Header::SIZE {
            return Err(Bad("shorter than its header"));
        }
        let header = abi::Header::read(&bytes[..abi::Header::SIZE]);
        if header.magic != abi::SNAPSHOT_MAGIC || (header.struct_size as usize) < abi::Header::SIZE {
            return Err(Bad("wrong magic or header size"));
        }
        if header.total_len != bytes.len() as u64 {
            return Err(Bad("its length differs from the header's"));
        }
        let unknown = header.features_incompat & !abi::FEATURES_INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(SnapshotError::Unsupported(unknown));
        }
        let within = |off: u64, count: u64, stride: u64| -> Option<(usize, usize)> {
            let end = count.checked_mul(stride)?.checked_add(off)?;
            (end <= bytes.len() as u64).then_some((off as usize, end as usize))
        };
        let dir_stride = header.dir_stride as usize;
        if dir_stride < abi::DirEntry::SIZE {
            return Err(Bad("directory stride too small"));
        }
        let (dir, dir_end) =
            within(header.dir_off, header.n_tables.into(), dir_stride as u64).ok_or(Bad("directory lies outside the block"))?;
        let mut tables = [Table::default(); TABLES_KNOWN];
        let mut last = 0;
        for entry in bytes[dir..dir_end].chunks_exact(dir_stride).map(abi::DirEntry::read) {
            if entry.table_id <= last {
                return Err(Bad("directory is not sorted by table id"));
            }
            last = entry.table_id;
            let (off, _) = within(entry.off, entry.count, entry.stride.into()).ok_or(Bad("a table lies outside the block"))?;
            if entry.stride == 0 || entry.count > u64::from(u32::MAX - 1) {
                return Err(Bad("a table has stride 0 or too many rows"));
            }
            if let Some(table) = tables.get_mut(entry.table_id as usize) {
                *table = Table { off, count: entry.count as usize, stride: entry.stride as usize };
            }
        }
        let snapshot = Snapshot { bytes, header, tables };
        snapshot.check_references()?;
        Ok(snapshot)
    }

    /// Every index points into its table, every range of rows lies in its table. Afterwards no reader has to check.
    fn check_references(&self) -> Result<(), SnapshotError> {
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(SnapshotError::Malformed(what)) };
        let row = |i: u32, n: usize| (i as usize) < n;
        let optional = |i: u32, n: usize| i == abi::NONE || row(i, n);
        let range = |first: u32, n: u32, len: usize| u64::from(first) + u64::from(n) <= len as u64;
        let (n_hosts, n_nodes, n_slots) = (self.hosts().len(), self.nodes().len(), self.slots().len());
        let (n_topologies, n_comps, n_execs) = (self.topologies().len(), self.components().len(), self.executors().len());
        for r in self.racks().iter() {
            check(range(r.first_host, r.n_hosts, n_hosts), "a rack's hosts")?;
        }
        for h in self.hosts().iter() {
            check(row(h.rack, self.racks().len()) && range(h.first_node, h.n_nodes, n_nodes), "a host's rack or nodes")?;
        }
        for n in self.nodes().iter() {
            check(row(n.host, n_hosts) && range(n.first_slot, n.n_slots, n_slots), "a node's host or slots")?;
        }
        for s in self.slots().iter() {
            check(row(s.node, n_nodes) && optional(s.topology, n_topologies), "a slot's node or topology")?;
        }
        for t in self.topologies().iter() {
            check(range(t.first_comp, t.n_comps, n_comps) && range(t.first_exec, t.n_execs, n_execs), "a topology's rows")?;
        }
        for c in self.components().iter() {
            check(row(c.topology, n_topologies) && range(c.first_exec, c.n_execs, n_execs), "a component's rows")?;
        }
        for e in self.edges().iter() {
            check(row(e.from, n_comps) && row(e.to, n_comps), "an edge's components")?;
        }
        for e in self.executors().iter() {
            check(row(e.topology, n_topologies) && row(e.component, n_comps) && optional(e.slot, n_slots), "an executor's rows")?;
        }
        Ok(())
    }

    fn rows<R: Row>(&self) -> Rows<'a, R> {
        let t = self.tables[R::TABLE as usize];
        Rows { bytes: &self.bytes[t.off..t.off + t.count * t.stride], stride: t.stride.max(1), count: t.count, kind: PhantomData }
    }

    /// The header.
    pub fn header(&self) -> abi::Header {
        self.header
    }
    /// Facts of the round, if the host states them.
    pub fn meta(&self) -> Option<abi::Meta> {
        let rows = self.rows::<abi::Meta>();
        (!rows.is_empty()).then(|| rows.get(0))
    }
    /// Racks by id.
    pub fn racks(&self) -> Rows<'a, abi::Rack> {
        self.rows()
    }
    /// Hosts by rack and name.
    pub fn hosts(&self) -> Rows<'a, abi::HostRow> {
        self.rows()
    }
    /// Supervisors by host and id.
    pub fn nodes(&self) -> Rows<'a, abi::NodeRow> {
        self.rows()
    }
    /// Slots by node and port.
    pub fn slots(&self) -> Rows<'a, abi::SlotRow> {
        self.rows()
    }
    /// Topologies by launch time and id.
    pub fn topologies(&self) -> Rows<'a, abi::TopologyRow> {
        self.rows()
    }
    /// Components by topology and name.
    pub fn components(&self) -> Rows<'a, abi::ComponentRow> {
        self.rows()
    }
    /// Subscriptions by from, to, stream.
    pub fn edges(&self) -> Rows<'a, abi::EdgeRow> {
        self.rows()
    }
    /// Executors by topology and first task.
    pub fn executors(&self) -> Rows<'a, abi::ExecutorRow> {
        self.rows()
    }
    /// Executors of one topology, by first task.
    pub fn executors_of(&self, topology: &abi::TopologyRow) -> impl ExactSizeIterator<Item = (ExecId, abi::ExecutorRow)> + 'a {
        let (rows, first) = (self.executors(), topology.first_exec as usize);
        (first..first + topology.n_execs as usize).map(move |i| (ExecId(i as u32), rows.get(i)))
    }
    /// A text. Bytes that are no UTF-8 or lie outside the string table read as empty.
    pub fn text(&self, s: abi::Str) -> &'a str {
        let t = self.tables[abi::TABLE_STRINGS as usize];
        let strings = &self.bytes[t.off..t.off + t.count * t.stride];
        strings.get(s.off as usize..).and_then(|b| b.get(..s.len as usize)).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("")
    }
}

/// Builds a snapshot. Rows are added in the canonical order of their table; the writer does not sort.
#[derive(Debug, Default)]
pub struct Writer {
    strings: Vec<u8>,
    /// (table, stride, count, rows), in any order.
    tables: Vec<(u32, usize, u64, Vec<u8>)>,
    /// Bytes of noise after each row.
    row_noise: usize,
}

impl Writer {
    /// A writer that makes every row so many bytes longer (a multiple of 8), filled with noise: what a newer host writes. A reader
    /// must answer as before; one that indexes rows as an array of its own struct does not.
    pub fn with_row_noise(row_noise: usize) -> Self {
        assert!(row_noise.is_multiple_of(8), "rows grow in multiples of 8");
        Writer { row_noise, ..Writer::default() }
    }

    /// Adds a text and returns its reference.
    pub fn text(&mut self, text: &str) -> abi::Str {
        let off = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        abi::Str { off, len: text.len() as u32 }
    }

    /// Adds a row and returns its index.
    pub fn row<R: Row>(&mut self, row: &R) -> u32 {
        let stride = R::SIZE + self.row_noise;
        let at = match self.tables.iter().position(|t| t.0 == R::TABLE) {
            Some(at) => at,
            None => {
                self.tables.push((R::TABLE, stride, 0, Vec::new()));
                self.tables.len() - 1
            }
        };
        let (_, _, count, bytes) = &mut self.tables[at];
        let start = bytes.len();
        bytes.resize(start + stride, 0xA5);
        row.write(&mut bytes[start..]);
        *count += 1;
        (*count - 1) as u32
    }

    /// The block.
    pub fn finish(mut self, round_id: u64) -> Vec<u8> {
        if !self.strings.is_empty() {
            self.tables.push((abi::TABLE_STRINGS, 1, self.strings.len() as u64, self.strings));
        }
        self.tables.sort_by_key(|t| t.0);
        let dir_off = abi::Header::SIZE;
        let align = |n: usize| n.next_multiple_of(abi::TABLE_ALIGN);
        let mut at = align(dir_off + self.tables.len() * abi::DirEntry::SIZE);
        let mut out = vec![0; at];
        for (i, (table_id, stride, count, rows)) in self.tables.iter().enumerate() {
            abi::DirEntry { table_id: *table_id, stride: *stride as u32, count: *count, off: at as u64 }
                .write(&mut out[dir_off + i * abi::DirEntry::SIZE..]);
            out.extend_from_slice(rows);
            at = align(out.len());
            out.resize(at, 0);
        }
        abi::Header {
            struct_size: abi::Header::SIZE as u32,
            magic: abi::SNAPSHOT_MAGIC,
            total_len: out.len() as u64,
            round_id,
            cluster_epoch: 0,
            features_compat: 0,
            features_incompat: 0,
            n_tables: self.tables.len() as u32,
            dir_stride: abi::DirEntry::SIZE as u32,
            dir_off: dir_off as u64,
        }
        .write(&mut out);
        out
    }
}
