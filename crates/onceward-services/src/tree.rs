//! A process and its descendants.
//!
//! PostgreSQL is a tree: a signal to its first process neither pauses nor kills the ones that
//! serve connections, and each of them leads a process group of its own.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::wait;

/// How long the system may take to end what was killed, or to stop it.
const ENDING: Duration = Duration::from_secs(10);

/// Sends a signal to one process. One that is gone needs none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = raw(pid) {
        let _is_gone = kill_process(pid, signal);
    }
}

/// Stops the whole tree, parents before children: what is stopped has no new children.
pub(crate) fn pause(root: u32) -> BTreeSet<u32> {
    let mut stopped = BTreeSet::from([root]);
    let mut new = vec![root];
    while !new.is_empty() {
        new.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let all = parents();
        let is_new =
            |(pid, parent): &&(u32, u32)| stopped.contains(parent) && !stopped.contains(pid);
        new = all.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        stopped.extend(&new);
    }
    stopped
}

/// Waits until each of them is stopped. On a busy machine a process with several threads goes on
/// answering until one of them has received the signal.
pub(crate) fn wait_until_stopped(pids: &BTreeSet<u32>) {
    let is_stopped = |pid: &u32| match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => matches!(after_name(&stat).next(), Some("T" | "t" | "Z" | "X")),
        // It has exited, or the system has no /proc.
        Err(_) => true,
    };
    let _or_the_limit = wait::until(ENDING, || pids.iter().all(is_stopped).then_some(()));
}

/// Lets the whole tree go on.
pub(crate) fn resume(root: u32) {
    // Stopping again changes nothing, and finds all processes.
    pause(root).into_iter().for_each(|pid| signal(pid, Signal::CONT));
}

/// Kills the whole tree at once, so that no process sees another one end, as in a power cut.
/// Returns the processes but the root, which its parent waits for.
pub(crate) fn kill(root: u32) -> BTreeSet<u32> {
    let mut all = pause(root);
    all.iter().for_each(|pid| signal(*pid, Signal::KILL));
    all.remove(&root);
    all
}

/// Waits until none of them runs any more.
pub(crate) fn all_ended(pids: &BTreeSet<u32>) -> bool {
    let ended = || (!pids.iter().any(|pid| is_alive(*pid))).then_some(());
    wait::until(ENDING, ended).is_some()
}

/// Whether a process runs: one that only waits to be asked for its status does not.
fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !matches!(after_name(&stat).next(), Some("Z" | "X")),
        Err(_) if fs::exists("/proc/self").unwrap_or(false) => false,
        Err(_) => raw(pid).is_some_and(|pid| test_kill_process(pid).is_ok()),
    }
}

/// Every process of the machine with its parent.
fn parents() -> Vec<(u32, u32)> {
    match fs::read_dir("/proc") {
        Ok(entries) => entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter_map(|pid| Some((pid, parent(pid)?)))
            .collect(),
        Err(_) => parents_by_ps(),
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat).nth(1)?.parse().ok()
}

/// The fields after the name in parentheses, which may contain anything.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit(')').next().unwrap_or_default().split_whitespace()
}

/// Where there is no `/proc`.
fn parents_by_ps() -> Vec<(u32, u32)> {
    let output = Command::new("ps").args(["-A", "-o", "pid=", "-o", "ppid="]).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let pair = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    String::from_utf8_lossy(&text).lines().filter_map(pair).collect()
}

fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Stdio};

    use super::*;

    fn tree() -> Child {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "sleep 600 & sleep 600 & wait"]).stdin(Stdio::null()).spawn().unwrap()
    }

    fn with_children(root: u32) -> BTreeSet<u32> {
        let children = || {
            let all = parents();
            let own = all.into_iter().filter(|(_, parent)| *parent == root);
            let pids: BTreeSet<u32> = own.map(|(pid, _)| pid).collect();
            (pids.len() == 2).then_some(pids)
        };
        wait::until(ENDING, children).expect("the shell starts two children")
    }

    #[test]
    fn killing_a_tree_leaves_none_of_it() {
        let mut root = tree();
        let children = with_children(root.id());
        assert_eq!(kill(root.id()), children);
        root.wait().unwrap();
        assert!(all_ended(&children));
    }

    #[test]
    fn a_paused_tree_is_paused_to_its_leaves_and_goes_on_when_resumed() {
        let mut root = tree();
        let leaf = *with_children(root.id()).first().unwrap();
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{leaf}/stat")).unwrap();
            after_name(&stat).next().unwrap().to_owned()
        };
        wait_until_stopped(&pause(root.id()));
        assert_eq!(state(), "T");
        resume(root.id());
        assert!(wait::until(ENDING, || (state() == "S").then_some(())).is_some());
        kill(root.id());
        root.wait().unwrap();
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(after_name("7 (a) b (c)) S 42 1").nth(1), Some("42"));
    }
}
