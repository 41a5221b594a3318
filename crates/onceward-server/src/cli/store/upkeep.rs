//! `onceward store compact` and `onceward store migrate`.

use onceward_stores::embedded::EmbeddedStore;

use crate::cli::Fallible;
use crate::cli::failure::Failure;
use crate::cli::interrupt::{Interrupt, Interrupted};
use crate::cli::output::{self, size};
use crate::cli::progress::Progress;
use crate::cli::target::must_exist;
use crate::config::{self, StoreKind};

pub(super) async fn compact(settings: &config::Store) -> Fallible {
    match settings.url.kind() {
        Some(StoreKind::Embedded) => compact_directory(settings).await,
        Some(StoreKind::Postgres) => {
            Err("PostgreSQL frees space by itself (autovacuum). After large deletions run VACUUM \
             (ANALYZE) onceward.idempotency_record (with your schema's name). VACUUM FULL shrinks \
             the file, and locks the table meanwhile"
                .into())
        }
        Some(StoreKind::Redis) => {
            Err("Redis frees memory by itself when records expire: there is nothing to compact"
                .into())
        }
        Some(StoreKind::Memory) | None => {
            Err("only a file: store can be compacted: give --store file:DIRECTORY".into())
        }
    }
}

async fn compact_directory(settings: &config::Store) -> Fallible {
    must_exist(settings)?;
    let at = onceward_stores::embedded_at(settings.url.expose()).map_err(|it| it.to_string())?;
    let Some((directory, options)) = at else {
        return Err(format!("store.url: {} is not a directory", settings.url).into());
    };
    let opening = tokio::task::spawn_blocking(move || EmbeddedStore::open(directory, options));
    let store = opening.await.map_err(|error| error.to_string())?;
    let store = store
        .map_err(|error| format!("{error}; a running gateway compacts its store by itself"))?;
    let mut interrupt = Interrupt::listen()?;
    let mut progress = Progress::new("bytes", None);
    let compacting = store.compact(|at| progress.at(at.disk_bytes));
    let stopped = |Interrupted| {
        let done = "the store is partly compacted, and no record is lost; repeat the command";
        Failure::Interrupted(done.to_owned())
    };
    let end = interrupt.or(compacting).await.map_err(stopped)?;
    drop(progress);
    let end = end.map_err(|error| error.to_string())?;
    let (files, dead) = (size(end.disk_bytes), size(end.dead_bytes));
    output::line(format!("the files now take {files}, of which {dead} are dead"))
}

#[cfg(feature = "postgres")]
pub(super) async fn migrate(settings: &config::Store, dry_run: bool) -> Fallible {
    use onceward_stores::postgres::PostgresStore;

    let at = onceward_stores::postgres_at(settings.url.expose()).map_err(|it| it.to_string())?;
    let Some((url, options)) = at else { return nothing_to_migrate() };
    let failed = |error: onceward_stores::postgres::OpenError| {
        Failure::Error(format!("{}: {error}", settings.url))
    };
    if dry_run {
        let plan = PostgresStore::pending_migrations(&url, &options).await.map_err(failed)?;
        let plan = if plan.is_empty() { "-- the tables are up to date" } else { &plan };
        return output::line(plan.trim_end());
    }
    // Not interruptible: it is one short transaction.
    let applied = PostgresStore::migrate(&url, &options).await.map_err(failed)?;
    output::line(match applied {
        0 => "the tables are up to date".to_owned(),
        applied => format!("{applied} migrations applied"),
    })
}

#[cfg(not(feature = "postgres"))]
pub(super) async fn migrate(_: &config::Store, _: bool) -> Fallible {
    nothing_to_migrate()
}

fn nothing_to_migrate() -> Fallible {
    Err("only postgres: stores have tables; other stores need no migration".into())
}
