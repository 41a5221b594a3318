//! Runs the README's commands and compares their output.

use example_walk::{Program, Readme};

/// The section that needs Redis.
const REDIS: &str = "Records in Redis";

fn readme() -> Readme {
    Readme::parse(include_str!("../README.md")).unwrap()
}

fn start(variables: &[(&str, &str)]) -> Program {
    let variables = [variables, &[("PORT", "0")]].concat();
    Program::start(env!("CARGO_BIN_EXE_example-production"), &variables)
}

#[test]
fn the_readmes_commands_return_what_it_says() {
    let service = start(&[]);
    readme().without(REDIS).run(&[("localhost:8083", &service.address())]);
}

#[cfg(feature = "redis")]
mod redis {
    use example_production::{Orders, Settings, app, engine};
    use example_walk::{App, RequiredTools, Step};
    use onceward_services::{Reply, Server, ask};
    use tokio::task::JoinSet;

    use super::*;

    const ORDER: &str = r#"{"customerId":"25dfc44e-3ed7-4eb4-b412-6a6df8c6d355","amount":99.99}"#;
    const HEADERS: [(&str, &str); 2] =
        [("x-tenant-id", "2b8de313-9c3c-4a15-a9b8-0cd1e34be3da"), ("idempotency-key", "order-123")];

    #[test]
    fn on_redis_all_of_the_readmes_commands_return_what_it_says() {
        let Some(redis) = onceward_services::redis() else { return };
        let service = start(&[("ONCEWARD_STORE", redis.url())]);
        let addresses =
            [("localhost:8083", &*service.address()), ("localhost:6379", &redis.address())];
        readme().run(&addresses);
    }

    /// Sends an order twice, and returns the request that waits for the database. The other one
    /// gets 409, which shows that this one has its record.
    async fn request_in_progress(redis: &Server, orders: Orders) -> JoinSet<u16> {
        let store = ("ONCEWARD_STORE".to_owned(), redis.url().to_owned());
        let settings = Settings::read([store]).unwrap();
        let engine = engine(settings.store.open().await.unwrap(), &settings).unwrap();
        let app = App::start(app(engine, orders, &settings).unwrap()).await;
        let mut both = JoinSet::new();
        for _ in 0..2 {
            let app = app.clone();
            both.spawn(async move { app.post("/api/orders", &HEADERS, ORDER).await.status });
        }
        assert_eq!(both.join_next().await.unwrap().unwrap(), 409);
        both
    }

    /// Time to live of the only record, in seconds; -1 if it has none.
    fn ttl(redis: &Server) -> i64 {
        let keys = ask(redis, &["KEYS", "order:idempotency:{*}:[0-9a-f]*"]).unwrap();
        let Reply::List(keys) = keys else { panic!("{keys:?}") };
        let [Reply::Text(key)] = &keys[..] else { panic!("{keys:?}") };
        let Reply::Text(seconds) = ask(redis, &["TTL", key]).unwrap() else { panic!("{key}") };
        seconds.parse().unwrap()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_in_progress_is_in_the_readmes_table_and_has_no_ttl() {
        let Some(redis) = onceward_services::redis() else { return };
        let readme = readme();
        if RequiredTools::check(&readme) != RequiredTools::Available {
            return; // the test above reports the missing tool
        }
        let prints_the_table = |step: &&Step| step.command.contains("HMGET");
        let table = readme.steps.iter().find(prints_the_table).expect("a step with HMGET");
        let table = || table.output(&[("localhost:6379", &redis.address())]).unwrap();

        let orders = Orders::default();
        let database = orders.lock().await;
        let mut request = request_in_progress(&redis, orders.clone()).await;
        assert_eq!(table(), "running|||POST /api/orders\n");
        assert_eq!(ttl(&redis), -1);
        drop(database);
        assert_eq!(request.join_next().await.unwrap().unwrap(), 201);
        assert_eq!(table(), "completed|201||POST /api/orders\n");
        assert!(ttl(&redis) > 0);
    }
}
