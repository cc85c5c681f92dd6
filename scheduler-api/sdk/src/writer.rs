//! Builds a snapshot: rows in, one block out. What the host packs with, and tests.

use saetta_abi::{self as abi, Row};

/// Builds a snapshot. Rows are added in the canonical order of their table; the writer does not sort.
#[derive(Debug, Clone, Default)]
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
        let (index, bytes) = self.grow(R::TABLE, R::SIZE);
        row.write(bytes);
        index
    }

    /// Adds a row of amounts, one for each resource kind, to `abi::TABLE_NODE_TOTAL`, `NODE_AVAIL`, `COMP_REQUEST` or `USER_GUARANTEE`.
    /// Panics when the rows of a table differ in length.
    pub fn amounts(&mut self, table: u32, amounts: &[i64]) -> u32 {
        let (index, bytes) = self.grow(table, size_of_val(amounts));
        for (at, amount) in bytes.chunks_exact_mut(8).zip(amounts) {
            at.copy_from_slice(&amount.to_le_bytes());
        }
        index
    }

    /// A new row of `size` bytes and some noise, and its index.
    fn grow(&mut self, table: u32, size: usize) -> (u32, &mut [u8]) {
        let stride = size + self.row_noise;
        let at = match self.tables.iter().position(|t| t.0 == table) {
            Some(at) => at,
            None => {
                self.tables.push((table, stride, 0, Vec::new()));
                self.tables.len() - 1
            }
        };
        let (_, first, count, bytes) = &mut self.tables[at];
        assert_eq!(*first, stride, "rows of table {table} have one length");
        let start = bytes.len();
        bytes.resize(start + stride, 0xA5);
        *count += 1;
        ((*count - 1) as u32, &mut bytes[start..start + size])
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
