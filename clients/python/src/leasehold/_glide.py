"""Where a client of Valkey GLIDE connects to. Its configuration says so; the connections are those of redis-py."""

from __future__ import annotations

from typing import Any, Union

from redis.asyncio import connection as async_connection

from . import _target
from .errors import SettingError


def of_glide(client: Any) -> Union[_target.Alone, _target.Clustered]:
    config: Any = getattr(client, "config", None) or client._config
    options: dict[str, Any] = {"db": config.database_id or 0, "client_name": config.client_name}
    if config.credentials is not None:
        if config.credentials.iam_config is not None:
            raise SettingError("client: credentials of IAM are not known")
        options.update(username=config.credentials.username, password=config.credentials.password)
    kind: type[async_connection.AbstractConnection] = async_connection.Connection
    if config.use_tls:
        kind = async_connection.SSLConnection
        options.update(_tls(getattr(config.advanced_config, "tls_config", None)))
    options = {name: value for name, value in options.items() if value is not None}
    if "Cluster" in type(client).__name__:
        seeds = [(address.host, address.port) for address in config.addresses]
        return _target.Clustered(_target.Endpoint(kind, options), seeds, None)
    if len(config.addresses) != 1:
        raise SettingError("client: it must have one address, that of the primary, which grants locks")
    [address] = config.addresses
    path = getattr(address, "unix_socket_path", None)
    if path is not None:
        return _target.Alone(
            _target.Endpoint(async_connection.UnixDomainSocketConnection, {**options, "path": str(path)})
        )
    return _target.Alone(_target.Endpoint(kind, {**options, "host": address.host, "port": address.port}))


def _tls(config: Any) -> dict[str, Any]:
    if getattr(config, "client_cert_pem", None):
        raise SettingError("client: certificates of clients are not known")
    trusted = getattr(config, "root_pem_cacerts", None)
    if getattr(config, "use_insecure_tls", None):
        return {"ssl_cert_reqs": "none", "ssl_check_hostname": False}
    return {} if trusted is None else {"ssl_ca_data": trusted.decode()}
