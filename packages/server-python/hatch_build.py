"""Puts the module into the wheel: LEASEHOLD_MODULE names it, and LEASEHOLD_PLATFORM what it is built for, such as
manylinux_2_17_x86_64; without that the wheel is for this machine alone. The licences that lie beside it go with it."""

import os
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        module = os.environ.get("LEASEHOLD_MODULE")
        if not module:
            raise RuntimeError("LEASEHOLD_MODULE must name libleasehold.so")
        platform = os.environ.get("LEASEHOLD_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        module = os.path.abspath(module)
        licences = os.path.join(os.path.dirname(module), "THIRD-PARTY")
        build_data["force_include"][module] = "leasehold_server/libleasehold.so"
        if os.path.exists(licences):
            build_data["force_include"][licences] = "leasehold_server/THIRD-PARTY"
