//! The tools: their names, descriptions and arguments.

use super::session::{Reply, Session};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value};
use std::time::Duration;

/// In seconds: how long others wait at most if this process is killed.
const LONGEST_TTL: u64 = 3_600;

/// In seconds.
const LONGEST_WAIT: u64 = 600;

const INSTRUCTIONS: &str = "\
Locks that all programs share that use the same server, on any machine. Acquire a lock before you change what it guards, and \
release it as soon as you are done. The lease ends by itself after ttl_seconds, and nothing renews it but your calls of \
renew. The fence is the number of your grant: pass it to renew and release, and to stores that refuse a smaller one. If \
renew or release reports an error, others may have had the lock meanwhile: stop, and check what you changed.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Acquire {
    /// The lock
    pub(super) name: String,
    /// How long the lease lasts unless you renew it: longer than your work until the next call
    #[schemars(range(min = 1, max = LONGEST_TTL))]
    ttl_seconds: u64,
    /// How long to wait in the queue while others hold the lock; 0 tries once. Keep it below the time after which your
    /// client gives up a call, which is often 60 seconds
    #[serde(default)]
    #[schemars(range(max = LONGEST_WAIT))]
    wait_seconds: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Wait {
    /// The lock
    pub(super) name: String,
    /// How long to wait at most
    #[schemars(range(max = LONGEST_WAIT))]
    wait_seconds: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Renew {
    /// The lock
    pub(super) name: String,
    /// The fence that acquire returned
    pub(super) fence: u64,
    /// How long the lease lasts from now on
    #[schemars(range(min = 1, max = LONGEST_TTL))]
    ttl_seconds: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Release {
    /// The lock
    pub(super) name: String,
    /// The fence that acquire returned
    pub(super) fence: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "rmcp::schemars")]
pub(super) struct Info {
    /// The lock
    pub(super) name: String,
}

impl Acquire {
    pub(super) fn ttl(&self) -> Result<Duration, String> {
        ttl(self.ttl_seconds)
    }

    pub(super) fn patience(&self) -> Result<Duration, String> {
        patience(self.wait_seconds)
    }
}

impl Wait {
    pub(super) fn patience(&self) -> Result<Duration, String> {
        patience(self.wait_seconds)
    }
}

impl Renew {
    pub(super) fn ttl(&self) -> Result<Duration, String> {
        ttl(self.ttl_seconds)
    }
}

fn ttl(seconds: u64) -> Result<Duration, String> {
    if (1..=LONGEST_TTL).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(format!(
        "ttl_seconds is {seconds}: it must be 1 to {LONGEST_TTL}. Renew the lease for longer work"
    ))
}

fn patience(seconds: u64) -> Result<Duration, String> {
    if seconds <= LONGEST_WAIT {
        return Ok(Duration::from_secs(seconds));
    }
    Err(format!(
        "wait_seconds is {seconds}: it must be 0 to {LONGEST_WAIT}. Call again to wait for longer"
    ))
}

impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("leasehold", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(all()))
    }

    async fn call_tool(
        &self,
        called: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !all().iter().any(|tool| tool.name == called.name) {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {}", called.name),
                None,
            ));
        }
        let result = match self.reply(called, context).await {
            Ok(result) => CallToolResult::structured(result),
            Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
        };
        Ok(result.into())
    }
}

impl Session {
    async fn reply(
        &self,
        called: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let given = called.arguments.unwrap_or_default();
        match &*called.name {
            "acquire" => self.acquire(read(given)?, context).await,
            "wait" => self.wait(read(given)?, context).await,
            "renew" => self.renew(read(given)?).await,
            "release" => self.release(read(given)?).await,
            _ => self.info(read(given)?).await,
        }
    }
}

fn read<T: DeserializeOwned>(given: JsonObject) -> Result<T, String> {
    from_value(Value::Object(given)).map_err(|error| format!("{error}. Nothing was done"))
}

fn all() -> Vec<Tool> {
    let looks = ToolAnnotations::new().read_only(true).open_world(false);
    let changes = ToolAnnotations::new().read_only(false).destructive(false).open_world(false);
    let acquire = "Takes a lock, or waits in its queue: first come, first served. Returns acquired: true with the fence, and \
        when the lease ends; or acquired: false and who holds it. Then nothing was taken: do not touch what it guards. If \
        held_by.is_this_session is true, an earlier call of yours holds it, with the fence shown.";
    let wait = "Waits until a lock is free, and does not take it: somebody else may have it when you ask. To take it, call \
        acquire with wait_seconds instead.";
    let renew = "Makes a lease that you hold end ttl_seconds from now. It is an error if the lease has ended: others may have \
        had the lock since, so stop, and check what you changed.";
    let release = "Gives a lock back; the next in the queue gets it at once. It is an error if the lease had ended before: \
        others may have had the lock while you worked, so check what you changed.";
    let info = "Tells who holds a lock, for how long, and how many wait. The answer may be outdated when it arrives: only \
        acquire decides.";
    let tool = |name, text, annotations: &ToolAnnotations| {
        Tool::new(name, text, JsonObject::new()).with_annotations(annotations.clone())
    };
    vec![
        tool("acquire", acquire, &changes).with_input_schema::<Acquire>(),
        tool("wait", wait, &looks).with_input_schema::<Wait>(),
        tool("renew", renew, &changes.clone().idempotent(true)).with_input_schema::<Renew>(),
        tool("release", release, &changes.idempotent(true)).with_input_schema::<Release>(),
        tool("info", info, &looks).with_input_schema::<Info>(),
    ]
}
