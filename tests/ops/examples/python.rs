//! A package for Python, in an environment of its own.

use crate::program::{Missing, available, find, folder, install, write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Several tests use each, at the same time.
pub(super) struct Package {
    name: &'static str,
    /// Which of it. The pages say so too.
    requirement: &'static str,
    installed: OnceLock<Result<PathBuf, Missing>>,
}

pub(super) static REDIS_PY: Package =
    Package { name: "redis-py", requirement: "redis==8.1.0", installed: OnceLock::new() };

/// An emulation of S3.
pub(super) static MOTO: Package =
    Package { name: "moto", requirement: "moto[s3,server]==5.2.5", installed: OnceLock::new() };

impl Package {
    /// Where its programs are, Python among them; `None`, and it says so, where it cannot be had.
    pub(super) fn programs(&self) -> Option<&Path> {
        let installed = self.installed.get_or_init(|| self.install());
        available(installed.as_ref()).map(PathBuf::as_path)
    }

    fn install(&self) -> Result<PathBuf, Missing> {
        let python = find("python3")?;
        let folder = folder(self.name);
        let programs = folder.join("bin");
        let stamp = folder.join("installed");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == self.requirement) {
            return Ok(programs);
        }
        if !install(Command::new(python).args(["-m", "venv"]).arg(&folder)).success {
            return Err("venv for python3".to_owned());
        }
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let mut pip_install = Command::new(programs.join("python"));
        if !install(pip_install.args(pip).arg(self.requirement)).success {
            return Err(format!("{} to be had by pip", self.requirement));
        }
        write(&stamp, self.requirement);
        Ok(programs)
    }
}
