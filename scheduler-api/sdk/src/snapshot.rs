//! The cluster as one block of bytes: a reader that trusts nothing.
//!
//! Before: `host/src/pack.rs` turned the model into rows. After: a scheduler walks typed rows by index.
//! Every row is found through the table's stride, so a newer host's longer rows read the same.
//! A reader checks the directory once ([`Snapshot::new`], O(tables)); a row read is a bounds-checked copy of a few words.

use saetta_abi::{self as abi, Field, Row};
use std::marker::PhantomData;
use std::ops::Range;

pub use crate::writer::Writer;

/// A row number of one table. Numbers of different tables are different types.
pub trait RowId: Copy {
    /// From a number found in a row.
    fn new(row: u32) -> Self;
    /// As an index into an array.
    fn index(self) -> usize;
}

/// A row that others refer to by number.
pub trait Entity: Row {
    /// Its number.
    type Id: RowId;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident of $row:ident),*) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl $name {
            /// As an index into an array.
            pub fn index(self) -> usize {
                self.0 as usize
            }
            /// From a field of a row that may say [`abi::NONE`].
            pub fn some(row: u32) -> Option<Self> {
                (row != abi::NONE).then_some($name(row))
            }
        }
        impl RowId for $name {
            fn new(row: u32) -> Self {
                $name(row)
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }
        impl Entity for abi::$row {
            type Id = $name;
        }
    )* };
}
ids!(
    /// Row of the table of resource kinds.
    KindId of KindRow,
    /// Row of the rack table.
    RackId of Rack,
    /// Row of the host table.
    HostId of HostRow,
    /// Row of the node table.
    NodeId of NodeRow,
    /// Row of the slot table.
    SlotId of SlotRow,
    /// Row of the core table.
    CoreId of CoreRow,
    /// Row of the user table.
    UserId of UserRow,
    /// Row of the topology table.
    TopoId of TopologyRow,
    /// Row of the component table.
    CompId of ComponentRow,
    /// Row of the edge table.
    EdgeId of EdgeRow,
    /// Row of the table of shared memory.
    BlockId of SharedMemRow,
    /// Row of the executor table.
    ExecId of ExecutorRow
);

impl KindId {
    /// CPU, in thousandths of a percent of a core.
    pub const CPU: KindId = KindId(abi::RESOURCE_CPU);
    /// Memory, in bytes.
    pub const MEMORY: KindId = KindId(abi::RESOURCE_MEMORY);
}

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
        self.range(0..self.count)
    }
    fn range(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = R> + use<'a, R> {
        let rows = Rows { ..*self };
        range.map(move |i| rows.get(i))
    }
    /// The rows whose `key` is this one, in a table that is sorted by it. O(log rows).
    fn with_key(&self, key: u32, of: fn(&R) -> u32) -> Range<usize> {
        let bound = |is_before: &dyn Fn(u32) -> bool| {
            let (mut low, mut high) = (0, self.count);
            while low < high {
                let middle = low + (high - low) / 2;
                if is_before(of(&self.get(middle))) { low = middle + 1 } else { high = middle }
            }
            low
        };
        bound(&|k| k < key)..bound(&|k| k <= key)
    }
}

impl<'a, R: Entity> Rows<'a, R> {
    /// One row by its number. Panics for a number of another snapshot that is beyond the end.
    pub fn at(&self, id: R::Id) -> R {
        self.get(id.index())
    }
    /// All rows in order, with their numbers.
    pub fn with_ids(&self) -> impl ExactSizeIterator<Item = (R::Id, R)> + use<'a, R> {
        self.span(0..self.count)
    }
    fn span(&self, range: Range<usize>) -> impl ExactSizeIterator<Item = (R::Id, R)> + use<'a, R> {
        let rows = Rows { ..*self };
        range.map(move |i| (R::Id::new(i as u32), rows.get(i)))
    }
}

/// Amounts of every resource kind.
#[derive(Debug, Clone, Copy)]
pub struct Amounts<'a> {
    bytes: &'a [u8],
    n_kinds: usize,
}

impl<'a> Amounts<'a> {
    /// Of one kind; 0 where the host states none.
    pub fn get(&self, kind: KindId) -> i64 {
        let at = kind.index() * 8;
        let stated = (kind.index() < self.n_kinds).then(|| self.bytes.get(at..at + 8)).flatten();
        stated.map_or(0, i64::get)
    }
    /// CPU, in thousandths of a percent of a core.
    pub fn cpu(&self) -> i64 {
        self.get(KindId::CPU)
    }
    /// Memory, in bytes.
    pub fn memory(&self) -> i64 {
        self.get(KindId::MEMORY)
    }
    /// One for each kind, in the order of the kinds.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = i64> + use<'a> {
        let amounts = *self;
        (0..self.n_kinds).map(move |k| amounts.get(KindId(k as u32)))
    }
}

/// What was measured on an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tuples per second, over all executors.
    pub tuples_per_s: u64,
    /// Their bytes per second.
    pub bytes_per_s: u64,
}

const TABLES_KNOWN: usize = 30;

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
            let rows = range(t.first_comp, t.n_comps, n_comps) && range(t.first_exec, t.n_execs, n_execs);
            check(rows && optional(t.user, self.users().len()), "a topology's rows")?;
        }
        for c in self.components().iter() {
            check(row(c.topology, n_topologies) && range(c.first_exec, c.n_execs, n_execs), "a component's rows")?;
        }
        let n_cores = self.cores().len();
        for e in self.executors().iter() {
            let places = optional(e.slot, n_slots) && optional(e.last_slot, n_slots) && optional(e.core, n_cores);
            check(row(e.topology, n_topologies) && row(e.component, n_comps) && places, "an executor's rows")?;
        }
        for b in self.blocks().iter() {
            check(row(b.topology, n_topologies), "the topology of shared memory")?;
        }
        for c in self.cores().iter() {
            check(row(c.node, n_nodes) && optional(c.sibling, n_cores), "a core's node or sibling")?;
        }
        let (n_blocks, n_edges) = (self.blocks().len(), self.edges().len());
        check(self.links(|e: &abi::EdgeRow| (e.from, e.to), n_comps, n_comps), "an edge's components")?;
        check(self.links(|i: &abi::IncompatibleRow| (i.component, i.other), n_comps, n_comps), "incompatible components")?;
        check(self.links(|s: &abi::CompSharedRow| (s.component, s.block), n_comps, n_blocks), "shared memory of components")?;
        check(self.links(|f: &abi::FavoredRow| (f.topology, f.host), n_topologies, n_hosts), "favored hosts")?;
        check(self.links(|f: &abi::UnfavoredRow| (f.topology, f.host), n_topologies, n_hosts), "unfavored hosts")?;
        check(self.links(|s: &abi::StatEdgeRow| (s.edge, s.edge), n_edges, n_edges), "measured edges")?;
        check(self.links(|c: &abi::CoreRow| (c.node, c.node), n_nodes, n_nodes), "the order of cores")?;
        check(self.links(|s: &abi::SlotCoreRow| (s.slot, s.core), n_slots, n_cores), "cores of slots")?;
        Ok(())
    }

    /// True when a table is sorted by its first row number (it is searched by it) and both numbers are inside their tables.
    fn links<R: Row>(&self, ends: fn(&R) -> (u32, u32), n_from: usize, n_to: usize) -> bool {
        let rows = self.rows::<R>();
        let sorted = rows.iter().map(|r| ends(&r).0).is_sorted();
        sorted && rows.iter().map(|r| ends(&r)).all(|(from, to)| (from as usize) < n_from && (to as usize) < n_to)
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
    /// Resource kinds: CPU, memory, then the others by name. None = the host knows nothing of resources.
    pub fn kinds(&self) -> Rows<'a, abi::KindRow> {
        self.rows()
    }
    /// The kind of this name.
    pub fn kind(&self, name: &str) -> Option<KindId> {
        self.kinds().with_ids().find(|(_, k)| self.text(k.name) == name).map(|(id, _)| id)
    }
    /// Owners of topologies by name.
    pub fn users(&self) -> Rows<'a, abi::UserRow> {
        self.rows()
    }
    /// Blocks of shared memory by topology and name.
    pub fn blocks(&self) -> Rows<'a, abi::SharedMemRow> {
        self.rows()
    }
    /// Cores by node and number.
    pub fn cores(&self) -> Rows<'a, abi::CoreRow> {
        self.rows()
    }

    /// Hosts of a rack.
    pub fn hosts_of(&self, rack: &abi::Rack) -> impl ExactSizeIterator<Item = (HostId, abi::HostRow)> + use<'a> {
        self.hosts().span(span(rack.first_host, rack.n_hosts))
    }
    /// Nodes of a host.
    pub fn nodes_of(&self, host: &abi::HostRow) -> impl ExactSizeIterator<Item = (NodeId, abi::NodeRow)> + use<'a> {
        self.nodes().span(span(host.first_node, host.n_nodes))
    }
    /// Slots of a node, by port.
    pub fn slots_of(&self, node: &abi::NodeRow) -> impl ExactSizeIterator<Item = (SlotId, abi::SlotRow)> + use<'a> {
        self.slots().span(span(node.first_slot, node.n_slots))
    }
    /// Components of a topology, by name.
    pub fn components_of(&self, topology: &abi::TopologyRow) -> impl ExactSizeIterator<Item = (CompId, abi::ComponentRow)> + use<'a> {
        self.components().span(span(topology.first_comp, topology.n_comps))
    }
    /// Executors of one topology, by first task.
    pub fn executors_of(&self, topology: &abi::TopologyRow) -> impl ExactSizeIterator<Item = (ExecId, abi::ExecutorRow)> + use<'a> {
        self.executors().span(span(topology.first_exec, topology.n_execs))
    }
    /// Executors of one component, by first task.
    pub fn executors_in(&self, component: &abi::ComponentRow) -> impl ExactSizeIterator<Item = (ExecId, abi::ExecutorRow)> + use<'a> {
        self.executors().span(span(component.first_exec, component.n_execs))
    }
    /// Subscriptions to a component's streams, by subscriber and stream.
    pub fn edges_from(&self, component: CompId) -> impl ExactSizeIterator<Item = (EdgeId, abi::EdgeRow)> + use<'a> {
        self.edges().span(self.edges().with_key(component.0, |e| e.from))
    }
    /// What was measured on a subscription; `None` = nothing was.
    pub fn rate(&self, edge: EdgeId) -> Option<Rate> {
        let rows = self.rows::<abi::StatEdgeRow>();
        let row = rows.range(rows.with_key(edge.0, |s| s.edge)).next()?;
        Some(Rate { tuples_per_s: row.tuples_per_s, bytes_per_s: row.bytes_per_s })
    }
    /// Components that may not share a worker with this one.
    pub fn incompatible_with(&self, component: CompId) -> impl ExactSizeIterator<Item = CompId> + use<'a> {
        let rows = self.rows::<abi::IncompatibleRow>();
        rows.range(rows.with_key(component.0, |i| i.component)).map(|i| CompId(i.other))
    }
    /// Shared memory a component uses.
    pub fn blocks_of(&self, component: CompId) -> impl ExactSizeIterator<Item = (BlockId, abi::SharedMemRow)> + use<'a> {
        let (rows, blocks) = (self.rows::<abi::CompSharedRow>(), self.blocks());
        rows.range(rows.with_key(component.0, |s| s.component)).map(move |s| (BlockId(s.block), blocks.at(BlockId(s.block))))
    }
    /// Hosts a topology would rather have, best first.
    pub fn favored(&self, topology: TopoId) -> impl ExactSizeIterator<Item = HostId> + use<'a> {
        let rows = self.rows::<abi::FavoredRow>();
        rows.range(rows.with_key(topology.0, |f| f.topology)).map(|f| HostId(f.host))
    }
    /// Hosts a topology would rather not have.
    pub fn unfavored(&self, topology: TopoId) -> impl ExactSizeIterator<Item = HostId> + use<'a> {
        let rows = self.rows::<abi::UnfavoredRow>();
        rows.range(rows.with_key(topology.0, |f| f.topology)).map(|f| HostId(f.host))
    }
    /// Cores of a node.
    pub fn cores_on(&self, node: NodeId) -> impl ExactSizeIterator<Item = (CoreId, abi::CoreRow)> + use<'a> {
        self.cores().span(self.cores().with_key(node.0, |c| c.node))
    }
    /// Cores that a worker in a slot gets. None where the host knows no cores.
    pub fn cores_of(&self, slot: SlotId) -> impl ExactSizeIterator<Item = CoreId> + use<'a> {
        let rows = self.rows::<abi::SlotCoreRow>();
        rows.range(rows.with_key(slot.0, |s| s.slot)).map(|s| CoreId(s.core))
    }

    /// All a node has.
    pub fn node_total(&self, node: NodeId) -> Amounts<'a> {
        self.amounts(abi::TABLE_NODE_TOTAL, node.index())
    }
    /// What the executors placed on a node leave, shared memory and the least CPU of a worker included.
    pub fn node_avail(&self, node: NodeId) -> Amounts<'a> {
        self.amounts(abi::TABLE_NODE_AVAIL, node.index())
    }
    /// What one executor of a component asks for.
    pub fn request(&self, component: CompId) -> Amounts<'a> {
        self.amounts(abi::TABLE_COMP_REQUEST, component.index())
    }
    /// What a user is sure to get.
    pub fn guarantee(&self, user: UserId) -> Amounts<'a> {
        self.amounts(abi::TABLE_USER_GUARANTEE, user.index())
    }
    fn amounts(&self, table: u32, row: usize) -> Amounts<'a> {
        let t = self.tables[table as usize];
        let start = t.off + row * t.stride;
        let bytes = if row < t.count { &self.bytes[start..start + t.stride] } else { &[] };
        Amounts { bytes, n_kinds: self.kinds().len() }
    }

    /// A text. Bytes that are no UTF-8 or lie outside the string table read as empty.
    pub fn text(&self, s: abi::Str) -> &'a str {
        let t = self.tables[abi::TABLE_STRINGS as usize];
        let strings = &self.bytes[t.off..t.off + t.count * t.stride];
        strings.get(s.off as usize..).and_then(|b| b.get(..s.len as usize)).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("")
    }
}

fn span(first: u32, n: u32) -> Range<usize> {
    first as usize..first as usize + n as usize
}
