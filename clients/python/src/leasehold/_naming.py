"""Names of locks from the arguments of a function."""

from __future__ import annotations

import inspect
import string
from typing import Any, Callable
from urllib.parse import quote

from .errors import SettingError


class _Escaping(string.Formatter):
    """``a:b`` and ``c`` make up another name than ``a`` and ``b:c``."""

    def format_field(self, value: Any, spec: str) -> str:
        return quote(format(value, spec), safe="")


def naming(template: str, work: Callable[..., object]) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    """What the arguments of each call make of the template: ``{0}`` is the first, ``{report}`` the one of this name."""
    signature = inspect.signature(work)
    fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
    if "" in fields:
        raise SettingError("name: its fields must have numbers or names: {0}, {report}")

    def name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _Escaping().vformat(template, tuple(bound.arguments.values()), bound.arguments)

    return name
