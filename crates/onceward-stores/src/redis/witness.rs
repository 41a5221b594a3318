//! What a server still says of the store when all keys are gone.
//!
//! A process that starts on a server without any mark has to know whether the server is new, or was
//! flushed while no process looked. So the store leaves a library of Redis functions, named
//! after its prefix and database, once its marks are made. `FLUSHALL` and `FLUSHDB` remove keys
//! and leave libraries, which are persisted and replicated with the data. Its function is
//! never called.
//!
//! A server that comes back without its files has lost the library too: it looks like a new one.

use redis::Value;

use super::link::Link;

/// Says that a store was set up on a server.
#[derive(Debug)]
pub(super) struct Witness {
    library: String,
    text: String,
}

impl Witness {
    pub(super) fn new(prefix: &str, database: i64) -> Self {
        // Names of libraries have letters, digits and underscores only.
        let prefix: String = prefix.bytes().map(|byte| format!("{byte:02x}")).collect();
        let library = format!("onceward_{database}_{prefix}");
        let text = format!(
            "#!lua name={library}\n\
             -- Onceward keeps records here. Deleting this library hides that they were lost.\n\
             redis.register_function('{library}', function() return 'set up' end)\n"
        );
        Self { library, text }
    }

    /// Whether the store was set up on any of the servers before.
    pub(super) async fn is_there(&self, link: &Link) -> bool {
        self.servers_with_it(link).await.is_some_and(|(with_it, _)| with_it > 0)
    }

    /// Leaves it on every server that lacks it.
    pub(super) async fn leave(&self, link: &Link) {
        match self.servers_with_it(link).await {
            None => {}
            Some((with_it, servers)) if with_it == servers => {}
            Some(_) => {
                let mut command = redis::cmd("FUNCTION");
                command.arg("LOAD").arg("REPLACE").arg(&self.text);
                if let Err(error) = link.call_all(&command).await {
                    warn(&error);
                }
            }
        }
    }

    /// How many of how many servers have it; nothing if they do not say.
    async fn servers_with_it(&self, link: &Link) -> Option<(usize, usize)> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LIST").arg("LIBRARYNAME").arg(&self.library);
        match link.call_all(&command).await {
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
