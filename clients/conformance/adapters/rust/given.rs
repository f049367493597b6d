//! What a request gives: options, settings, and where the servers are.

use crate::{Trouble, duration, number, text, unsupported};
use leasehold_client::{Renew, Request, Server, Settings};
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, TlsCertificates};
use serde_json::Value;

pub(crate) fn options(asked: Request, request: &Value) -> Result<Request, Trouble> {
    for field in ["ttl", "wait"] {
        if request.get(field).is_some_and(|value| value.as_u64().is_none()) {
            return Err(unsupported("a duration is nothing but a duration"));
        }
    }
    let mut asked = asked;
    if let Some(ttl) = duration(request, "ttl") {
        asked = asked.ttl(ttl);
    }
    if let Some(wait) = duration(request, "wait") {
        asked = asked.wait(wait);
    }
    if let Some(owner) = request.get("owner").and_then(Value::as_str) {
        asked = asked.owner(owner);
    }
    if let Some(grace) = duration(request, "ephemeral") {
        asked = asked.ephemeral(grace);
    }
    if let Some(count) = number(request, "replicas") {
        asked = asked.replicas(count, duration(request, "replicas_within").unwrap_or_default());
    }
    if let Some(least) = duration(request, "hold_at_least") {
        asked = asked.hold_at_least(least);
    }
    if request.get("renew") == Some(&Value::Bool(false)) {
        asked = asked.renew(Renew::Never);
    }
    if let Some(limit) = duration(request, "renew") {
        asked = asked.renew(Renew::For(limit));
    }
    Ok(asked)
}

pub(crate) fn settings(request: &Value) -> Settings {
    let mut settings = Settings::default();
    let Some(given) = request.get("settings") else { return settings };
    for (name, field) in [
        ("ttl", &mut settings.ttl),
        ("response", &mut settings.response_timeout),
        ("within", &mut settings.retry_for),
        ("unreachable_after", &mut settings.unreachable_after),
        ("slice", &mut settings.check_every),
    ] {
        *field = duration(given, name).unwrap_or(*field);
    }
    settings.queue = given.get("queue") != Some(&Value::Bool(false));
    if let Some(most) = number(given, "wait_connections") {
        settings.wait_connections = usize::try_from(most).unwrap_or(usize::MAX);
    }
    if given.get("prefix").is_some() {
        settings.prefix = text(given, "prefix").to_owned();
    }
    settings
}

pub(crate) fn server(request: &Value) -> Result<Server, Trouble> {
    let urls = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
    };
    if let Some(nodes) = request.get("cluster") {
        return Ok(ClusterClient::new(urls(nodes)).map_err(wrong_place)?.into());
    }
    if let Some(sentinel) = request.get("sentinel") {
        let address =
            |url: String| Ok(url.into_connection_info().map_err(wrong_place)?.addr().clone());
        let sentinels = sentinel.get("urls").map(urls).unwrap_or_default();
        let sentinels: Vec<ConnectionAddr> =
            sentinels.into_iter().map(address).collect::<Result<_, Trouble>>()?;
        let builder = SentinelClientBuilder::new(
            sentinels,
            text(sentinel, "service"),
            SentinelServerType::Master,
        );
        return Ok(builder.and_then(SentinelClientBuilder::build).map_err(wrong_place)?.into());
    }
    if let Some(servers) = request.get("quorum") {
        let open = |url: String| Client::open(url).map_err(wrong_place);
        return Ok(Server::quorum(
            urls(servers).into_iter().map(open).collect::<Result<Vec<_>, _>>()?,
        ));
    }
    let url = text(request, "url");
    if !url.starts_with("rediss") {
        return Ok(Client::open(url).map_err(wrong_place)?.into());
    }
    let read = |field: &str| match request.get(field).and_then(Value::as_str) {
        Some(file) => {
            std::fs::read(file).map(Some).map_err(|error| unsupported(&error.to_string()))
        }
        None => Ok(None),
    };
    let identity = read("certificate")?.zip(read("key")?);
    let client_tls =
        identity.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: read("ca")? };
    Ok(Client::build_with_tls(url, certificates).map_err(wrong_place)?.into())
}

fn wrong_place(error: redis::RedisError) -> Trouble {
    unsupported(&error.to_string())
}

pub(crate) fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}
