"""Names of locks from the arguments of a function."""

from __future__ import annotations

import inspect
import re
import string
from typing import Any, Callable
from urllib.parse import quote

from .errors import SettingError


class _Escaping(string.Formatter):
    """``a:b`` and ``c`` make up another name than ``a`` and ``b:c``."""

    def format_field(self, value: Any, spec: str) -> str:
        kind: Any = type(value)
        if kind.__format__ is object.__format__ and kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
            # Each object would have a lock of its own.
            raise SettingError(f"name: a {kind.__name__} has no text; of a method, {{0}} is the object itself")
        return quote(format(value, spec), safe="")


def naming(template: str, work: Callable[..., object]) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    """What the arguments of each call make of the template: ``{0}`` is the first, ``{report}`` the one of this name."""
    signature = inspect.signature(work)
    parameters = signature.parameters
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for _, field, _, _ in string.Formatter().parse(template):
        if field is None:
            continue
        first = re.split(r"[.\[]", field)[0]
        if not first:
            raise SettingError("name: its fields must have numbers or names: {0}, {report}")
        is_there = int(first) < len(parameters) if first.isdecimal() else first in parameters or is_open
        if not is_there:
            raise SettingError(f"name: {getattr(work, '__name__', work)} has no argument {first}")

    def name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = {**bound.arguments, **bound.kwargs}
        return _Escaping().vformat(template, tuple(bound.arguments.values()), given)

    return name
