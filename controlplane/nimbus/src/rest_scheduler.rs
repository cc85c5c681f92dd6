//! REST about scheduling: which plugin, another one, its records, why an executor is where it is.
//!
//! ```text
//! GET  /api/v1/scheduler                    plugin, breaker, shadow, last round
//! POST /api/v1/scheduler/use                {"plugin":"NAME|FILE"}; tried first      200, 422 says what it failed at
//! POST /api/v1/scheduler/reset              takes a quarantined plugin back at once  200
//! GET  /api/v1/scheduler/rounds             recorded rounds, oldest first
//! GET  /api/v1/scheduler/rounds/{file}      one, as the flight recorder wrote it
//! GET  /api/v1/topologies/{name-or-id}/executors/{first_task}/why     200, 404, 409 before the first round
//! ```

use crate::leader::{Known, Shared};
use crate::plugins::{scheduler, use_plugin};
use crate::rest::{ApiError, Segment, envelope, find, leading, read_json};
use crate::status::{core_of, scheduled};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use saetta_sched_host::Scheduler;
use saetta_sched_host::record::Recorder;
use saetta_sched_host::switch::NoAnswer;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/scheduler", get(show))
        .route("/api/v1/scheduler/use", post(choose))
        .route("/api/v1/scheduler/reset", post(reset))
        .route("/api/v1/scheduler/rounds", get(rounds))
        .route("/api/v1/scheduler/rounds/{file}", get(round))
        .route("/api/v1/topologies/{topology}/executors/{first_task}/why", get(why))
}

/// Runs what may wait for a round.
async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(f).await.map_err(|e| ApiError::internal(e.to_string()))
}

async fn show(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    leading(&shared).await?;
    Ok(envelope("Scheduler", &scheduler(&shared)?.status()).into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UseRequest {
    plugin: String,
}

async fn choose(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, ApiError> {
    let asked: Result<UseRequest, ApiError> = read_json(request).await;
    let term = leading(&shared).await?;
    let plugin = asked?.plugin;
    // A client that goes away must not stop it half way.
    let done = tokio::spawn(async move { use_plugin(&shared, &term, plugin).await });
    let trial = done.await.map_err(|e| ApiError::internal(e.to_string()))??;
    Ok(envelope("SchedulerSwitch", &trial).into_response())
}

async fn reset(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    let term = leading(&shared).await?;
    let scheduler = scheduler(&shared)?;
    let status = blocking(move || {
        scheduler.reset();
        scheduler.status()
    });
    let status = status.await?;
    term.poke(saetta_sched_host::Reason::Periodic);
    Ok(envelope("Scheduler", &status).into_response())
}

fn recorder(scheduler: &Scheduler) -> Result<Recorder, ApiError> {
    let policy = &scheduler.options().policy;
    let none = || ApiError::new(StatusCode::NOT_FOUND, "this nimbus records no rounds".into());
    Ok(Recorder::new(policy.rounds.clone().ok_or_else(none)?, policy.rounds_bytes_max))
}

async fn rounds(State(shared): State<Arc<Shared>>) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let recorder = recorder(&*scheduler(&shared)?)?;
    let items = blocking(move || recorder.list()).await?.map_err(|e| ApiError::internal(format!("recorded rounds: {e}")))?;
    Ok(envelope("RoundList", &json!({ "items": items })).into_response())
}

async fn round(State(shared): State<Arc<Shared>>, Segment(file): Segment) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let recorder = recorder(&*scheduler(&shared)?)?;
    let bytes = blocking(move || recorder.path(&file).map(std::fs::read)).await?;
    let none = || ApiError::new(StatusCode::NOT_FOUND, "no recorded round has that name; /api/v1/scheduler/rounds lists them".into());
    let bytes = bytes.ok_or_else(none)?.map_err(|e| ApiError::internal(format!("recorded round: {e}")))?;
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))], bytes).into_response())
}

async fn why(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, ApiError> {
    leading(&shared).await?;
    let Path((topology, task)) = path.map_err(|e| ApiError::new(StatusCode::BAD_REQUEST, format!("the address cannot be read: {e}")))?;
    let first_task: u32 = task.parse().map_err(|_| ApiError::invalid("an executor is named by the number of its first task".into()))?;
    let known = Known::read(&*shared.store).await?;
    let id = find(&known, &topology)?;
    let scheduler = scheduler(&shared)?;
    let asked = {
        let id = id.clone();
        blocking(move || scheduler.why(id.as_str(), first_task)).await?
    };
    let why = asked.map_err(|e| match e {
        NoAnswer::NoRound => ApiError::conflict("no scheduling round has run yet; try again in a moment".into()),
        NoAnswer::Unknown => ApiError::new(
            StatusCode::NOT_FOUND,
            format!("the last round knew no executor of {id} whose first task is {first_task}; `saetta status` lists them"),
        ),
    })?;
    let record = &known.cluster.topologies[&id];
    let executor = crate::round::layout_of(record).ok().and_then(|layout| {
        let of = layout.components.iter().find_map(|c| Some((c.id.clone(), *c.executors.iter().find(|e| e.first == first_task)?)));
        let (component, e) = of?;
        let mut executor = json!({ "component": component, "first_task": e.first, "last_task": e.last });
        if let Some((core, core_why)) = core_of(&known.cluster, record, &layout, e) {
            executor["core"] = core.into();
            executor["core_why"] = core_why.into();
        }
        Some(executor)
    });
    let mut fields = serde_json::to_value(&why).expect("reasons are always JSON");
    if let (Some(fields), Some(Value::Object(executor))) = (fields.as_object_mut(), executor) {
        fields.extend(executor);
    }
    fields["topology"] = id.as_str().into();
    fields["scheduled"] = serde_json::to_value(scheduled(&why.how)).expect("a status is always JSON");
    if let Some(slot) = &why.slot {
        (fields["node"], fields["port"]) = (slot.node.as_str().into(), slot.port.into());
    }
    Ok(envelope("Why", &fields).into_response())
}
