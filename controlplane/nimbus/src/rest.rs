//! REST on loopback: what clients and supervisors ask of the leader.
//!
//! ```text
//! PUT  /api/v1/blobs/{sha256}              the binary, streamed      201 new, 200 was there
//! GET  /api/v1/blobs/{sha256}              whether it is there       200, 404
//! POST /api/v1/topologies                  SubmitRequest             201 stored, 200 stored before by the same request id
//! GET  /api/v1/topologies                  list
//! GET  /api/v1/topologies/{name-or-id}     status
//! POST /api/v1/topologies/{name-or-id}/kill   {"wait_secs": n|null}  202
//! .... /api/v1/scheduler and why an executor is where it is: `rest_scheduler.rs`
//! GET  /internal/v1/blobs/{sha256}         Authorization: Bearer SECRET
//! GET  /internal/v1/topologies/{id}/key    Authorization: Bearer SECRET; 64 hex digits
//! GET  /livez  /readyz  /version           any nimbus
//! ```
//!
//! Answers are `{"api_version":"v1","kind":...}`; errors have kind `Error` and one line in `error`. A nimbus that does not lead
//! answers 503 with the leader's address. A foreign `Host` is 421 (DNS rebinding), a foreign `Origin` on a write 403; bodies are bounded.

use crate::home::UploadError;
use crate::leader::{Known, Shared, Term};
use crate::rest_scheduler;
use crate::status;
use crate::submit::{self, SubmitRequest, Submitted};
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::TryStreamExt;
use saetta_model::Name;
use saetta_model::name::nearest;
use saetta_sched_host::library::copy_path;
use saetta_store::StoreError;
use saetta_store::paths::is_sha256;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Largest sum of header names and values, bytes.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Largest JSON body. A record is at most 1 MB in the store, so nothing larger could be kept.
const JSON_BYTES_MAX: usize = 2 << 20;
/// Longest wait that a kill may ask for, seconds: a year.
const KILL_WAIT_SECS_MAX: f64 = 31_536_000.0;
/// Most bytes of a body that are read only to be thrown away.
const DISCARD_BYTES_MAX: u64 = 64 << 20;
/// Longest time a JSON body, or one that is thrown away, may take to come.
const BODY_MAX: Duration = Duration::from_secs(30);

/// The routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/v1/blobs/{sha256}", get(has_blob).put(put_blob))
        .route("/api/v1/topologies", get(list).post(post_topology))
        .route("/api/v1/topologies/{topology}", get(show))
        .route("/api/v1/topologies/{topology}/kill", post(kill))
        .merge(rest_scheduler::routes())
        .route("/internal/v1/blobs/{sha256}", get(internal_blob))
        .route("/internal/v1/topologies/{id}/key", get(internal_key))
        .route("/livez", get(async || envelope("Live", &json!({}))))
        .route("/readyz", get(ready))
        .route("/version", get(async || envelope("Version", &json!({ "version": env!("CARGO_PKG_VERSION") }))))
        .fallback(async || {
            ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this address; the API begins at /api/v1/topologies".into())
        })
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this address does not know that method".into())
        })
        .layer(middleware::from_fn(guard))
        .with_state(shared)
}

/// An answer that is an error: status and one line.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    pub(crate) text: String,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, text: String) -> Self {
        ApiError { status, text }
    }

    pub(crate) fn invalid(text: String) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    pub(crate) fn conflict(text: String) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    pub(crate) fn internal(text: String) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl From<StoreError> for ApiError {
    fn from(e: StoreError) -> Self {
        let status = match &e {
            StoreError::Unavailable { .. } | StoreError::Fenced { .. } => StatusCode::SERVICE_UNAVAILABLE,
            StoreError::Conflict { .. } => StatusCode::CONFLICT,
            StoreError::NotFound { .. } => StatusCode::NOT_FOUND,
            StoreError::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            StoreError::Corrupt { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, e.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // One line, whatever a name from outside held.
        let text: String = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        (self.status, envelope("Error", &json!({ "error": text }))).into_response()
    }
}

/// The part of an address that names something. One that is no text is refused in our form, not the library's.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(text)| Segment(text)).map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, format!("the address cannot be read: {e}")))
    }
}

/// Puts the envelope around an object.
pub(crate) fn envelope<T: Serialize>(kind: &str, fields: &T) -> Json<Value> {
    let mut body = serde_json::to_value(fields).expect("answers are always JSON");
    let object = body.as_object_mut().expect("answers are objects");
    object.insert("api_version".into(), "v1".into());
    object.insert("kind".into(), kind.into());
    Json(body)
}

/// Refuses what a browser on a foreign page could send.
async fn guard(request: Request, next: Next) -> Response {
    let header_bytes: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > HEADER_BYTES_MAX {
        let why = format!("the headers are larger than {HEADER_BYTES_MAX} bytes");
        return ApiError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, why).into_response();
    }
    if request.headers().get_all(header::HOST).iter().count() > 1 {
        return ApiError::new(StatusCode::BAD_REQUEST, "there is more than one Host header".into()).into_response();
    }
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).or_else(|| request.uri().authority().map(|a| a.as_str()));
    let Some(host) = host.filter(|h| is_loopback_host(h)).map(str::to_owned) else {
        return ApiError::new(
            StatusCode::MISDIRECTED_REQUEST,
            "the Host header names another machine; use 127.0.0.1, [::1] or localhost".into(),
        )
        .into_response();
    };
    let writes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let origin = request.headers().get(header::ORIGIN);
    if writes && origin.is_some_and(|o| o.as_bytes() != format!("http://{host}").as_bytes()) {
        return ApiError::new(
            StatusCode::FORBIDDEN,
            "the Origin header names another site; changes are taken from programs and from pages of this address".into(),
        )
        .into_response();
    }
    next.run(request).await
}

fn is_loopback_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(ip, _)| ip),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The term, or 503 with the leader's address.
pub(crate) async fn leading(shared: &Shared) -> Result<Arc<Term>, ApiError> {
    let term = shared.term.borrow().clone().filter(|t| t.lead.is_held());
    if let Some(term) = term {
        return Ok(term);
    }
    let text = match shared.store.leader().await {
        Ok(Some(leader)) if leader.id != shared.info.id => {
            format!("nimbus {} does not lead; ask the leader {} at {}", shared.info.id, leader.id, leader.address)
        }
        Ok(_) => format!("nimbus {} does not lead yet; try again in a moment", shared.info.id),
        Err(e) => format!("nimbus {} does not lead, and who does is not known: {e}", shared.info.id),
    };
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text))
}

/// Reads a bounded JSON body.
pub(crate) async fn read_json<T: DeserializeOwned>(request: Request) -> Result<T, ApiError> {
    let bytes = read_body(request).await?;
    parse(&bytes)
}

/// Reads what a client is sending and throws it away, so that it comes to reading our answer: a client whose connection is closed
/// under its hands reports a broken pipe and not the reason. Bounded; who sends more than that gets the broken pipe.
async fn discard(body: Body, announced: Option<u64>) {
    if announced.is_some_and(|n| n > DISCARD_BYTES_MAX) {
        return;
    }
    let reading = async {
        let mut chunks = body.into_data_stream();
        let mut n = 0;
        while let Ok(Some(chunk)) = chunks.try_next().await {
            n += chunk.len() as u64;
            if n > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    // Out of time is as good as read: the answer goes out either way.
    let _ = tokio::time::timeout(BODY_MAX, reading).await;
}

async fn read_body(request: Request) -> Result<Bytes, ApiError> {
    let too_large = || ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {JSON_BYTES_MAX} bytes"));
    let length = announced(request.headers());
    if length.is_some_and(|n| n > JSON_BYTES_MAX as u64) {
        discard(request.into_body(), length).await;
        return Err(too_large());
    }
    let reading = tokio::time::timeout(BODY_MAX, axum::body::to_bytes(request.into_body(), JSON_BYTES_MAX));
    let Ok(limited) = reading.await else {
        return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s", BODY_MAX.as_secs())));
    };
    limited.map_err(|e| {
        use std::error::Error;
        // The limit is an error of its own kind below; anything else is the connection.
        match e.source().is_some_and(|s| s.to_string().contains("length limit")) {
            true => too_large(),
            false => ApiError::new(StatusCode::BAD_REQUEST, format!("the body broke off: {e}")),
        }
    })
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // The library would take an array for an object with its fields in order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("the body is not what is expected here: it is an array, expected an object".into()));
    }
    serde_json::from_slice(bytes).map_err(|e| {
        // The position is in serde_json's text: line and column.
        let status = if e.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        ApiError::new(status, format!("the body is not what is expected here: {e}"))
    })
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn checked_sha256(text: &str) -> Result<&str, ApiError> {
    if is_sha256(text) {
        return Ok(text);
    }
    let shown: String = text.chars().take(80).collect();
    Err(ApiError::invalid(format!("{shown:?} is not a SHA-256 in 64 lower-case hex digits")))
}

/// True where the binary is here and still has its hash: an upload is how an operator mends one that has not.
async fn holds(shared: &Arc<Shared>, sha256: &str) -> Result<bool, ApiError> {
    let (shared, sha256) = (shared.clone(), sha256.to_owned());
    tokio::task::spawn_blocking(move || shared.home.holds(&sha256)).await.map_err(|e| ApiError::internal(e.to_string()))
}

async fn put_blob(State(shared): State<Arc<Shared>>, Segment(sha256): Segment, request: Request) -> Result<Response, ApiError> {
    let length = announced(request.headers());
    let early = match leading(&shared).await {
        Err(e) => Err(e),
        Ok(_) => match checked_sha256(&sha256) {
            Err(e) => Err(e),
            Ok(sha256) => Ok(holds(&shared, sha256).await? && shared.home.touch_blob(sha256).is_ok()),
        },
    };
    // It is there, or cannot be taken: what is being sent is read to its end all the same.
    if !matches!(early, Ok(false)) {
        discard(request.into_body(), length).await;
        return early.map(|_| (StatusCode::OK, envelope("Blob", &json!({ "sha256": sha256, "new": false }))).into_response());
    }
    let sha256 = sha256.as_str();
    shared.home.receive(sha256, request.into_body(), length).await.map_err(|e| match e {
        UploadError::TooLarge => {
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the binary is larger than {} bytes; strip it", crate::BLOB_BYTES_MAX))
        }
        UploadError::WrongHash { got } => {
            ApiError::invalid(format!("the bytes that came have SHA-256 {got}, not {sha256}; nothing was kept"))
        }
        UploadError::Elf(e) => ApiError::invalid(e.to_string()),
        UploadError::Broken(why) => ApiError::new(StatusCode::BAD_REQUEST, format!("the upload broke off: {why}; nothing was kept")),
        UploadError::Full(why) => ApiError::new(StatusCode::INSUFFICIENT_STORAGE, format!("nimbus.dir has no room for the binary: {why}")),
        UploadError::Io(why) => ApiError::internal(format!("the binary could not be written: {why}")),
    })?;
    Ok((StatusCode::CREATED, envelope("Blob", &json!({ "sha256": sha256, "new": true }))).into_response())
}

/// Lets a client find out that it need not upload; a yes holds for as long as an upload would.
async fn has_blob(State(shared): State<Arc<Shared>>, Segment(sha256): Segment) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let sha256 = checked_sha256(&sha256)?;
    let whole = holds(&shared, sha256).await?;
    match shared.home.blob_bytes(sha256) {
        Some(bytes) if whole && shared.home.touch_blob(sha256).is_ok() => {
            Ok(envelope("Blob", &json!({ "sha256": sha256, "bytes": bytes })).into_response())
        }
        _ => Err(ApiError::new(StatusCode::NOT_FOUND, format!("binary {sha256} is not here; upload it"))),
    }
}

async fn post_topology(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    let asked: Result<SubmitRequest, ApiError> = read_json(request).await;
    let term = leading(&shared).await?;
    let asked = asked?;
    // A client that goes away must not stop a submission half way: it runs to its end in a task of its own.
    let done = tokio::spawn(async move { submit::submit(&shared, &term, asked).await });
    let Submitted { record, notes, new } = done.await.map_err(|e| ApiError::internal(e.to_string()))??;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, envelope("Topology", &json!({ "id": record.id, "name": record.name, "state": record.state.word(), "notes": notes })))
        .into_response())
}

async fn list(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let known = Known::read(&*shared.store).await?;
    let items: Vec<_> = known.cluster.topologies.values().map(|r| status::summary(&known.cluster, r)).collect();
    let unreadable: Vec<_> = known.corrupt.values().flatten().map(|c| json!({ "path": c.path, "why": c.why })).collect();
    let mut fields = json!({ "items": items });
    if !unreadable.is_empty() {
        fields["unreadable"] = unreadable.into();
    }
    Ok(envelope("TopologyList", &fields).into_response())
}

async fn show(State(shared): State<Arc<Shared>>, Segment(topology): Segment) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let known = Known::read(&*shared.store).await?;
    let id = find(&known, &topology)?;
    let explanation = shared.explanations.lock().expect("nothing panics while it holds this").get(&id).cloned();
    let full = status::full(&known.cluster, &known.cluster.topologies[&id], explanation.as_ref());
    let errors = shared.store.errors(&id).await?;
    let mut fields = serde_json::to_value(full).expect("a status is always JSON");
    fields["errors"] = serde_json::to_value(errors).expect("errors are always JSON");
    Ok(envelope("Topology", &fields).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KillRequest {
    /// Seconds; absent = the topology's message timeout.
    #[serde(default)]
    wait_secs: Option<f64>,
}

async fn kill(State(shared): State<Arc<Shared>>, Segment(topology): Segment, request: Request) -> Result<Response, ApiError> {
    let body = read_body(request).await;
    let term = leading(&shared).await?;
    let body = body?;
    let asked: KillRequest = if body.is_empty() { KillRequest::default() } else { parse(&body)? };
    let wait_ms = match asked.wait_secs {
        Some(secs) if !(0.0..=KILL_WAIT_SECS_MAX).contains(&secs) => {
            return Err(ApiError::invalid(format!("wait_secs = {secs}: allowed are 0 to {KILL_WAIT_SECS_MAX} seconds")));
        }
        wait => wait.map(|secs| (secs * 1000.0) as u64),
    };
    let known = Known::read(&*shared.store).await?;
    let id = find(&known, &topology)?;
    let done = tokio::spawn(async move { submit::kill(&shared, &term, &id, wait_ms).await });
    let record = done.await.map_err(|e| ApiError::internal(e.to_string()))??;
    let deadline_ms = match record.state {
        saetta_model::TopologyState::Killed { deadline_ms } => Some(deadline_ms),
        _ => None,
    };
    let fields = json!({ "id": record.id, "name": record.name, "state": record.state.word(), "deadline_ms": deadline_ms });
    Ok((StatusCode::ACCEPTED, envelope("Topology", &fields)).into_response())
}

/// A topology by name, else by id. Unknown = 404 with what is near.
pub(crate) fn find(known: &Known, text: &str) -> Result<Name, ApiError> {
    let topologies = &known.cluster.topologies;
    if let Some(record) = topologies.values().find(|r| r.name.as_str() == text).or_else(|| topologies.get(text)) {
        return Ok(record.id.clone());
    }
    let shown: String = text.chars().take(160).collect();
    let names = topologies.values().map(|r| r.name.as_str()).chain(topologies.keys().map(Name::as_str));
    let hint = match nearest(&shown, names) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if topologies.is_empty() => "; no topology is here".into(),
        None => "; `saetta list` shows what is here".into(),
    };
    Err(ApiError::new(StatusCode::NOT_FOUND, format!("no topology {shown:?}{hint}")))
}

fn authenticated(shared: &Shared, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::AUTHORIZATION).and_then(|v| v.as_bytes().strip_prefix(b"Bearer ")).unwrap_or_default();
    if bool::from(given.ct_eq(shared.home.secret().as_bytes())) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNAUTHORIZED,
        "this address is for supervisors: send `Authorization: Bearer` with the content of cluster.secret.file, the same file nimbus uses"
            .into(),
    ))
}

async fn internal_blob(State(shared): State<Arc<Shared>>, Segment(sha256): Segment, headers: HeaderMap) -> Result<Response, ApiError> {
    authenticated(&shared, &headers)?;
    let sha256 = checked_sha256(&sha256)?;
    let not_here =
        |e: std::io::Error| ApiError::new(StatusCode::NOT_FOUND, format!("binary {sha256} is not on nimbus {}: {e}", shared.info.id));
    // A binary, or a scheduler plugin that another nimbus is to have too.
    let file = std::fs::File::open(shared.home.blob_path(sha256))
        .or_else(|_| std::fs::File::open(copy_path(&shared.home.plugins(), sha256)))
        .map_err(not_here)?;
    let len = file.metadata().map_err(not_here)?.len();
    let chunks = shared.home.io().read(file).await;
    let chunks = futures::stream::unfold(chunks, async |mut chunks| chunks.recv().await.map(|chunk| (chunk, chunks)));
    let mut response = Body::from_stream(chunks).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

async fn internal_key(State(shared): State<Arc<Shared>>, Segment(id): Segment, headers: HeaderMap) -> Result<Response, ApiError> {
    authenticated(&shared, &headers)?;
    let id = Name::new(&id).map_err(|e| ApiError::invalid(e.to_string()))?;
    let reading = {
        let (shared, id) = (shared.clone(), id.clone());
        tokio::task::spawn_blocking(move || shared.home.key(&id))
    };
    match reading.await.map_err(|e| ApiError::internal(e.to_string()))? {
        Ok(key) => Ok(hex::encode(key).into_response()),
        Err(e) => Err(ApiError::new(StatusCode::NOT_FOUND, format!("the key of topology {id} is not on nimbus {}: {e}", shared.info.id))),
    }
}

async fn ready(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let leads = shared.term.borrow().is_some();
    match shared.store.leader().await? {
        Some(leader) => Ok(envelope("Ready", &json!({ "leader": leader.address, "leads": leads })).into_response()),
        None => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no nimbus leads now".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_hosts() {
        for good in ["127.0.0.1", "127.0.0.1:6627", "localhost:1", "LOCALHOST", "[::1]:6627", "127.9.9.9:1"] {
            assert!(is_loopback_host(good), "{good}");
        }
        for bad in [
            "",
            "example.org",
            "example.org:6627",
            "10.0.0.1:6627",
            "127.0.0.1.example.org",
            "localhost.example.org:1",
            "[::2]:1",
            "::1.org",
        ] {
            assert!(!is_loopback_host(bad), "{bad}");
        }
    }
}
