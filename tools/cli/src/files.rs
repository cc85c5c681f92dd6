//! Files that a user names.
//!
//! Before: a path from the command line. After: its text, or what is wrong with it and what to do.

use crate::exit::{Exit, Failure, Outcome};
use std::io::Read;
use std::path::Path;

/// The text of a file; nothing that is no file, is longer than `bytes_max` or not UTF-8. `what` is what the user takes it for.
pub(crate) fn text_of(what: &str, path: &Path, bytes_max: u64, where_to_look: &'static str) -> Outcome<String> {
    let refuse = |why: String| Failure::new(Exit::Invalid, format!("{what} {}", path.display())).why(why);
    let about = path.metadata().map_err(|e| refuse(e.to_string()).hint(where_to_look))?;
    if !about.is_file() {
        return Err(refuse("it is not a file".into()));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| refuse(e.to_string()))?;
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(|e| refuse(e.to_string()))?;
    if bytes.len() as u64 > bytes_max {
        return Err(refuse(format!("it is larger than {bytes_max} bytes")));
    }
    String::from_utf8(bytes).map_err(|e| refuse(format!("it is not UTF-8: byte {}", e.utf8_error().valid_up_to())))
}
