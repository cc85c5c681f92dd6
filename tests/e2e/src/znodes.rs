//! Everything that stands in ZooKeeper, read as a stranger reads it.

use std::time::Duration;
use zookeeper_client::{Client, Error};

/// Longest time to read the whole tree.
const READ_MAX: Duration = Duration::from_secs(30);

/// A node.
#[derive(Debug, Clone)]
pub struct Znode {
    /// Absolute path.
    pub path: String,
    /// Its value, as text.
    pub value: String,
    /// Transaction of its last change.
    pub mzxid: i64,
}

/// All nodes below `root`, by path.
pub fn znodes(servers: &str, root: &str) -> Vec<Znode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let read = async {
        let client = Client::connect(servers).await?;
        let (mut found, mut dirs) = (Vec::new(), vec![root.to_owned()]);
        while let Some(dir) = dirs.pop() {
            // What is not there yet, or has gone since it was listed, has no children.
            for child in or_none(client.list_children(&dir).await)?.unwrap_or_default() {
                let path = format!("{dir}/{child}");
                let Some((value, stat)) = or_none(client.get_data(&path).await)? else { continue };
                found.push(Znode { path: path.clone(), value: String::from_utf8_lossy(&value).into_owned(), mzxid: stat.mzxid });
                dirs.push(path);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok::<_, Error>(found)
    };
    runtime.block_on(async { tokio::time::timeout(READ_MAX, read).await }).expect("ZooKeeper answers in time").expect("ZooKeeper answers")
}

fn or_none<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(Error::NoNode) => Ok(None),
        other => other.map(Some),
    }
}
