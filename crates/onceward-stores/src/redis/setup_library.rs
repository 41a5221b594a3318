//! A function library that shows that the store was set up here, even when all keys are gone.
//!
//! A process that starts on a server without any loss marker must know whether the server is new,
//! or was flushed while no process was running. So the store leaves a library of Redis functions,
//! named after its prefix and database, once its markers are created. `FLUSHALL` and `FLUSHDB`
//! remove keys and keep libraries, which are persisted and replicated with the data. The function
//! is never called.
//!
//! A server that comes back without its files has lost the library too, and looks like a new one.

use redis::Value;

use super::connection::Connections;

/// The library of one store.
#[derive(Debug)]
pub(super) struct SetupLibrary {
    library: String,
    text: String,
}

impl SetupLibrary {
    pub(super) fn new(prefix: &str, database: i64) -> Self {
        // Names of libraries consist of letters, digits and underscores.
        let prefix: String = prefix.bytes().map(|byte| format!("{byte:02x}")).collect();
        let library = format!("onceward_{database}_{prefix}");
        let text = format!(
            "#!lua name={library}\n\
             -- Onceward keeps records here. Deleting this library hides that they were lost.\n\
             redis.register_function('{library}', function() return 'set up' end)\n"
        );
        Self { library, text }
    }

    /// Returns whether the store was set up on any of the servers before.
    pub(super) async fn is_there(&self, connections: &Connections) -> bool {
        self.servers_with_it(connections).await.is_some_and(|(with_it, _)| with_it > 0)
    }

    /// Loads the library on every server that lacks it.
    pub(super) async fn leave(&self, connections: &Connections) {
        match self.servers_with_it(connections).await {
            None => {}
            Some((with_it, servers)) if with_it == servers => {}
            Some(_) => {
                let mut command = redis::cmd("FUNCTION");
                command.arg("LOAD").arg("REPLACE").arg(&self.text);
                if let Err(error) = connections.call_all(&command).await {
                    warn(&error);
                }
            }
        }
    }

    /// Returns how many of how many servers have it; `None` if they do not tell.
    async fn servers_with_it(&self, connections: &Connections) -> Option<(usize, usize)> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LIST").arg("LIBRARYNAME").arg(&self.library);
        match connections.call_all(&command).await {
            Ok(answers) => {
                let has_it = |(_, value): &&(String, Value)| matches!(value, Value::Array(it) if !it.is_empty());
                Some((answers.iter().filter(has_it).count(), answers.len()))
            }
            Err(error) => {
                warn(&error);
                None
            }
        }
    }
}

fn warn(error: &onceward_core::StoreError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the Redis server does not let the store leave a function library: a flush while no \
         process runs is not noticed. Allow `+function|list` and `+function|load`, or open the \
         store with `empty=refuse`"
    );
}
