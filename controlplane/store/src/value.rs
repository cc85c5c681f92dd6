//! The bytes of a value: one version byte, then JSON. Golden files (`tests/golden`) pin it.

use crate::error::StoreError;
use serde::{Serialize, de::DeserializeOwned};

/// Version this build writes, and the newest it reads.
const VALUE_VERSION: u8 = 1;
/// Largest value in bytes: ZooKeeper refuses a request above 1 MiB (`jute.maxbuffer`), header included.
pub const VALUE_BYTES_MAX: usize = 1_000_000;

/// Makes the bytes. Fails (`Refused`) above [`VALUE_BYTES_MAX`].
pub fn encode<T: Serialize>(path: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![VALUE_VERSION];
    serde_json::to_writer(&mut bytes, value).map_err(|e| StoreError::Refused { path: path.into(), why: e.to_string() })?;
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(StoreError::Refused {
            path: path.into(),
            why: format!("the value has {} bytes, and the store takes at most {VALUE_BYTES_MAX}; make the topology smaller", bytes.len()),
        });
    }
    Ok(bytes)
}

/// Checks the bytes. A version above ours is refused with that reason, never guessed at.
pub fn decode<T: DeserializeOwned>(path: &str, bytes: &[u8]) -> Result<T, StoreError> {
    let corrupt = |why: String| StoreError::Corrupt { path: path.into(), why };
    match bytes.split_first() {
        None => Err(corrupt("it is empty".into())),
        Some((&VALUE_VERSION, json)) => serde_json::from_slice(json).map_err(|e| corrupt(format!("it is not a value of version 1: {e}"))),
        Some((version, _)) if *version > VALUE_VERSION && *version < b' ' => Err(corrupt(format!(
            "it was written by a newer Saetta (value version {version}, this one reads up to {VALUE_VERSION}); upgrade this daemon"
        ))),
        Some((version, _)) => {
            Err(corrupt(format!("it does not begin with a version byte (found {version:#04x}); was it written by hand?")))
        }
    }
}
