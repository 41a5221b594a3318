//! Sealing anew what earlier keys have sealed.

use crate::commands::Fallible;
use crate::commands::failure::Failure;
use crate::commands::interrupt::{Interrupt, Interrupted};
use crate::commands::out::{self, count};
use crate::commands::place::must_exist;
use crate::commands::progress::Progress;
use crate::config;
use crate::store;

/// Records at a time: between two of these Ctrl-C is heard.
const CHUNK: usize = 100;

pub(super) async fn reseal(settings: &config::Store) -> Fallible {
    must_exist(settings)?;
    let store = store::open_seals(settings).await.map_err(|error| error.to_string())?;
    let Some(store) = store else {
        return Err("nothing is sealed: the configuration has no store.sealing_keys_file and no \
                    store.sealing_keys_env"
            .into());
    };
    let mut interrupt = Interrupt::listen()?;
    let mut progress = Progress::new("records looked at", None);
    let (mut seen, mut resealed, mut after, mut wrong) = (0, 0, None, Vec::new());
    loop {
        let done = store.reseal(after, CHUNK).await.map_err(|error| {
            Failure::Told(format!("{error}; {resealed} records were sealed anew, run it again"))
        })?;
        (seen, resealed) = (seen + done.seen as u64, resealed + done.resealed as u64);
        wrong.extend(done.undecodable);
        progress.at(seen);
        after = done.next;
        if after.is_none() {
            break;
        }
        let stopped = |Interrupted| {
            Failure::Interrupted(format!(
                "{} records were sealed anew; keep the earlier keys, and run it again",
                count(resealed)
            ))
        };
        interrupt.or(tokio::task::yield_now()).await.map_err(stopped)?;
    }
    drop(progress);
    wrong.iter().try_for_each(|id| out::line(format!("does not open  {id}")))?;
    out::line(format!("{} of {} records were sealed anew", count(resealed), count(seen)))?;
    match wrong.len() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} records do not open; keep the earlier keys").into()),
    }
}
