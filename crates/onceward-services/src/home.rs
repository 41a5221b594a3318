//! Homes of servers: a temporary directory and a block of loopback ports.

use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder};
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ServiceError;
use crate::guard::Guard;
use crate::owner::Owner;

/// The first port that is ever used. All are below the range that systems take the client's
/// side of a connection from (32768 on Linux): otherwise a client that reconnects to a killed
/// server could be given that very port, and the server could not come back.
const PORTS_BEGIN: u16 = 10_000;
/// A Redis Cluster needs six ports.
const PORTS_PER_HOME: u16 = 8;
const HOMES: u16 = 1_250;
/// Redis Cluster nodes talk to each other on their port plus this: 20000 to 29999.
const BUS: u16 = 10_000;
/// Attempts to find free ports. Another process may take one between the check and the server's
/// start.
const TRIES: u32 = 5;

/// A private directory and its ports. Dropping it ends its servers and removes the directory.
#[derive(Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    first_port: u16,
    owner: Option<Owner>,
    _guard: Guard,
}

impl Home {
    /// Starts a server in a new home, and tries another one if its ports are taken.
    pub(crate) fn for_starting<T>(
        start: impl Fn(&Arc<Self>) -> Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut tries = 1;
        loop {
            match start(&Arc::new(Self::new()?)) {
                Err(error) if error.port_was_taken() && tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    fn new() -> Result<Self, ServiceError> {
        let (directory, first_port) = reserve()?;
        let guard = Guard::of(&directory)?;
        let home = Self { directory, first_port, owner: Owner::other_than_root(), _guard: guard };
        home.give_away(&home.directory)?;
        Ok(home)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The user that servers run as, if not the present one.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// One of the home's ports.
    pub(crate) fn port(&self, index: u16) -> u16 {
        debug_assert!(index < PORTS_PER_HOME);
        self.first_port + index
    }

    /// A directory inside, which the servers' user can write to.
    pub(crate) fn room(&self, name: &str) -> Result<PathBuf, ServiceError> {
        let room = self.directory.join(name);
        create(&room).map_err(ServiceError::io(format!("creating {}", room.display())))?;
        self.give_away(&room)?;
        Ok(room)
    }

    /// A file inside, which the servers' user can read.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, ServiceError> {
        let file = self.directory.join(name);
        fs::write(&file, text).map_err(ServiceError::io(format!("writing {}", file.display())))?;
        self.give_away(&file)?;
        Ok(file)
    }

    pub(crate) fn give_away(&self, path: &Path) -> Result<(), ServiceError> {
        let Some(owner) = self.owner else { return Ok(()) };
        chown(path, Some(owner.uid), Some(owner.gid))
            .map_err(ServiceError::io(format!("changing the owner of {}", path.display())))
    }
}

/// A directory's name is its first port: creating it, which only one process can, reserves the
/// ports among all tests of the machine.
fn reserve() -> Result<(PathBuf, u16), ServiceError> {
    let begin = RandomState::new().hash_one(std::process::id());
    for offset in 0..u64::from(HOMES) {
        let number = (begin.wrapping_add(offset) % u64::from(HOMES)) as u16;
        let first_port = PORTS_BEGIN + number * PORTS_PER_HOME;
        let directory = std::env::temp_dir().join(format!("onceward-services-{first_port}"));
        match create(&directory) {
            Ok(()) if all_free(first_port) => return Ok((directory, first_port)),
            Ok(()) => drop(fs::remove_dir(&directory)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(ServiceError::io(format!("creating {}", directory.display()))(error));
            }
        }
    }
    let doing = format!("looking for {PORTS_PER_HOME} free ports in a row");
    Err(ServiceError::io(doing)(io::ErrorKind::AddrInUse.into()))
}

fn all_free(first: u16) -> bool {
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (first..first + PORTS_PER_HOME).all(|port| is_free(port) && is_free(port + BUS))
}

/// Readable by its owner only, as PostgreSQL demands of its data.
fn create(directory: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(directory)
}
