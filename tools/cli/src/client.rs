//! The way to nimbus: REST over every seed in turn, answers turned into exit codes.

use crate::exit::{Exit, Failure, Outcome};
use crate::output::{items, text};
use crate::settings::Settings;
use reqwest::{Method, RequestBuilder, StatusCode};
use saetta_model::name::nearest;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longest wait for a nimbus to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for the answer to one request; uploads have only [`UPLOAD_SILENCE`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of nimbus after an upload: it hashes and syncs the file.
const UPLOAD_SILENCE: Duration = Duration::from_secs(120);
/// How long a cluster without a leader, or out of reach, is asked again: an election takes a session timeout.
const REACH_WITHIN: Duration = Duration::from_secs(10);
/// Between two rounds over the seeds.
const REACH_PAUSE: Duration = Duration::from_millis(500);
/// Longest answer text repeated to people.
const REFUSAL_CHARS_MAX: usize = 2_000;

/// A client of one cluster.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    seeds: Vec<String>,
}

/// One attempt at one seed: an answer for good, or a reason to ask the next.
enum Attempt {
    Answered(Outcome<Vec<u8>>),
    Elsewhere { seed: String, why: String, refused: bool },
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Outcome<Self> {
        let seeds: Vec<String> = settings
            .daemon
            .text("nimbus.seeds")
            .unwrap_or_default()
            .split(',')
            .map(|s| s.trim().to_owned())
            .filter(|s| !s.is_empty())
            .collect();
        if seeds.is_empty() {
            return Err(Failure::new(Exit::Invalid, "nimbus.seeds names no address").hint("set nimbus.seeds=HOST:PORT"));
        }
        if let Some(bad) = seeds.iter().find(|s| !is_authority(s)) {
            return Err(Failure::new(Exit::Invalid, format!("nimbus.seeds: {bad:?} is not HOST:PORT")).hint("write as 127.0.0.1:6627"));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .map_err(|e| Failure::new(Exit::Failed, "making an HTTP client").why(e))?;
        Ok(Client { http, seeds })
    }

    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        self.ask(Method::GET, path, &|r| r.timeout(ANSWER_TIMEOUT)).await
    }

    /// Every request that changes something is harmless when repeated, so it is sent again when no answer came.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Outcome<Value> {
        self.post_within(path, body, ANSWER_TIMEOUT).await
    }

    /// The same, where nimbus has more to do before it answers.
    pub(crate) async fn post_within(&self, path: &str, body: &Value, limit: Duration) -> Outcome<Value> {
        self.ask(Method::POST, path, &|r| r.timeout(limit).json(body)).await
    }

    /// Uploads with a body made anew for each attempt.
    pub(crate) async fn put(&self, path: &str, body: &(dyn Fn() -> Outcome<reqwest::Body> + Sync), bytes: u64) -> Outcome<Value> {
        // Opened once before, so that an unreadable file is said as such.
        body()?;
        self.ask(Method::PUT, path, &|r| {
            let r = r.timeout(UPLOAD_SILENCE.max(Duration::from_secs(bytes >> 20))).header(reqwest::header::CONTENT_LENGTH, bytes);
            match body() {
                Ok(body) => r.body(body),
                Err(_) => r,
            }
        })
        .await
    }

    /// A file of nimbus, whole.
    pub(crate) async fn bytes(&self, path: &str) -> Outcome<Vec<u8>> {
        self.reach(Method::GET, path, &|r| r.timeout(UPLOAD_SILENCE)).await
    }

    async fn ask(&self, method: Method, path: &str, dress: &(dyn Fn(RequestBuilder) -> RequestBuilder + Sync)) -> Outcome<Value> {
        Ok(serde_json::from_slice(&self.reach(method, path, dress).await?).unwrap_or(Value::Null))
    }

    async fn reach(&self, method: Method, path: &str, dress: &(dyn Fn(RequestBuilder) -> RequestBuilder + Sync)) -> Outcome<Vec<u8>> {
        let began = Instant::now();
        loop {
            let mut tried = Vec::new();
            let mut all_refused = true;
            for seed in &self.seeds {
                let request = dress(self.http.request(method.clone(), format!("http://{seed}{path}")));
                match attempt(seed, request).await {
                    Attempt::Answered(outcome) => return outcome,
                    Attempt::Elsewhere { seed, why, refused } => {
                        all_refused &= refused;
                        tried.push(format!("{seed} ({why})"));
                    }
                }
            }
            // Nobody listens at any seed: waiting would not help. A missing leader or a lost answer may pass.
            if all_refused || began.elapsed() + REACH_PAUSE >= REACH_WITHIN {
                return Err(Failure::new(Exit::Unreachable, "no nimbus answered for the cluster")
                    .why(format!("tried {}", tried.join(", ")))
                    .hint("start one with `saetta dev` or `saetta nimbus`, or say where it is with --set nimbus.seeds=HOST:PORT"));
            }
            tokio::time::sleep(REACH_PAUSE).await;
        }
    }

    /// The topology meant by a name, an id, or the beginning of either that fits one topology only.
    pub(crate) async fn find(&self, wanted: &str) -> Outcome<Value> {
        let list = self.get("/api/v1/topologies").await?;
        pick(items(&list, "items"), wanted).cloned()
    }
}

async fn attempt(seed: &str, request: RequestBuilder) -> Attempt {
    let elsewhere = |why: String, refused| Attempt::Elsewhere { seed: seed.to_owned(), why, refused };
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(e) => return elsewhere(innermost(&e), e.is_connect()),
    };
    let status = answer.status();
    let body = match answer.bytes().await {
        Ok(body) => body,
        Err(e) => return elsewhere(format!("the answer broke off: {}", innermost(&e)), false),
    };
    if status.is_success() {
        return Attempt::Answered(Ok(body.into()));
    }
    let value = serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null);
    let said = match text(&value, "error") {
        said if said.is_empty() => String::from_utf8_lossy(&body).trim().chars().take(REFUSAL_CHARS_MAX).collect(),
        said => said,
    };
    let fail = |exit| Attempt::Answered(Err(Failure::new(exit, said.clone())));
    match status {
        StatusCode::SERVICE_UNAVAILABLE => elsewhere(said, false),
        StatusCode::NOT_FOUND => fail(Exit::NotFound),
        StatusCode::CONFLICT => fail(Exit::Conflict),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => fail(Exit::Denied),
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY | StatusCode::PAYLOAD_TOO_LARGE => fail(Exit::Invalid),
        other => Attempt::Answered(Err(Failure::new(Exit::Failed, said.clone()).why(format!("nimbus {seed} answered {other}")))),
    }
}

fn pick<'a>(all: &'a [Value], wanted: &str) -> Outcome<&'a Value> {
    let is = |item: &Value, test: &dyn Fn(&str) -> bool| test(&text(item, "name")) || test(&text(item, "id"));
    if let Some(exact) = all.iter().find(|i| is(i, &|n| n == wanted)) {
        return Ok(exact);
    }
    let begin: Vec<&Value> = all.iter().filter(|i| !wanted.is_empty() && is(i, &|n| n.starts_with(wanted))).collect();
    let names: Vec<String> = all.iter().map(|i| text(i, "name")).collect();
    match begin[..] {
        [one] => Ok(one),
        [] => {
            let failure = Failure::new(Exit::NotFound, format!("there is no topology `{wanted}`"));
            Err(match nearest(wanted, names.iter().map(String::as_str)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None if names.is_empty() => failure.why("there are no topologies at all"),
                None => failure.hint("`saetta list` shows them all"),
            })
        }
        _ => {
            let fits: Vec<String> = begin.iter().map(|i| text(i, "name")).collect();
            Err(Failure::new(Exit::NotFound, format!("`{wanted}` is the beginning of several topologies")).why(fits.join(", ")))
        }
    }
}

/// The innermost reason: `connection refused` rather than `error sending request for url (...)`.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// True for `host:port` as it may stand in a URL.
fn is_authority(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_fine = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_')),
    };
    host_is_fine && port.parse::<u16>().is_ok_and(|p| p != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_topology_is_meant_by_name_id_or_an_only_beginning() {
        let all = [json!({"name": "word", "id": "word-1-5"}), json!({"name": "wordcount", "id": "wordcount-2-6"})];
        let name = |wanted: &str| pick(&all, wanted).map(|i| text(i, "name"));
        assert_eq!(name("word").unwrap(), "word", "an exact name wins over a beginning");
        assert_eq!(name("wordcount-2-6").unwrap(), "wordcount");
        assert_eq!(name("wordc").unwrap(), "wordcount");
        assert!(name("wo").unwrap_err().to_string().contains("several"));
        let missing = name("wordcoutn").unwrap_err();
        assert!(missing.exit == Exit::NotFound && missing.to_string().contains("did you mean `wordcount`?"), "{missing}");
        assert!(name("").is_err());
    }

    #[test]
    fn seeds_are_host_and_port() {
        for good in ["127.0.0.1:1", "[::1]:6627", "nimbus-1.example:6627"] {
            assert!(is_authority(good), "{good}");
        }
        for bad in ["127.0.0.1", ":1", "a b:1", "a:0", "a:65536", "http://a:1", "::1:6627", "a/b:1"] {
            assert!(!is_authority(bad), "{bad}");
        }
    }
}
