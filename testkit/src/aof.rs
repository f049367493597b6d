//! The contents of the append-only file: the commands that a restart would replay.

use super::Server;
use super::command_reader::next_command;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

const FENCE_CLOCK: &[u8] = b"leasehold:fence-clock";

/// The commands appended so far, in order. Without SELECT, MULTI and EXEC, which change no key by themselves, without
/// broadcasts of the fence clock, and without the part that a rewrite wrote as RDB.
pub fn commands(server: &Server) -> Vec<Vec<Vec<u8>>> {
    let is_told = |command: &Vec<Vec<u8>>| command.get(1).is_some_and(|key| key == FENCE_CLOCK);
    all(server).filter(|command| !is_frame(&command[0]) && !is_told(command)).collect()
}

/// The same commands as `commands`, as lines of text.
pub fn lines(server: &Server) -> Vec<String> {
    commands(server).into_iter().map(line).collect()
}

/// All commands as lines of text.
pub fn framed_lines(server: &Server) -> Vec<String> {
    all(server).map(line).collect()
}

fn all(server: &Server) -> impl Iterator<Item = Vec<Vec<u8>>> {
    files(server.dir()).into_iter().flat_map(|file| parse(fs::read(file).unwrap()))
}

fn line(words: Vec<Vec<u8>>) -> String {
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

fn is_frame(name: &[u8]) -> bool {
    [&b"SELECT"[..], b"MULTI", b"EXEC"].iter().any(|frame| name.eq_ignore_ascii_case(frame))
}

/// The file that the server appends to.
pub fn current_file(server: &Server) -> PathBuf {
    files(server.dir()).pop().expect("a file is appended to")
}

/// Before 7.0 one file, since then the files in the manifest.
fn files(dir: &Path) -> Vec<PathBuf> {
    let folder = dir.join("appendonlydir");
    let Ok(manifest) = fs::read_to_string(folder.join("appendonly.aof.manifest")) else {
        return vec![dir.join("appendonly.aof")];
    };
    let names = manifest.lines().map(|line| {
        let mut words = line.split(' ');
        assert_eq!(words.next(), Some("file"), "in the manifest: {line}");
        folder.join(words.next().unwrap())
    });
    names.filter(|path| !path.to_string_lossy().ends_with(".rdb")).collect()
}

fn parse(file: Vec<u8>) -> Vec<Vec<Vec<u8>>> {
    let mut rest = &file[..];
    iter::from_fn(|| next_command(&mut rest)).collect()
}
