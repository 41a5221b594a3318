//! Publishing in transactions of sqlx.

use onceward_events::{EventId, PublishError, Published};
use onceward_stores::postgres::sqlx::{Connection as _, PgConnection};

use super::common::{Fixture, event, shared};

#[tokio::test]
async fn an_event_commits_with_a_transaction_of_sqlx() {
    let Some(server) = shared() else { return };
    let it = Fixture::new(server).await;
    let url = format!("{}?sslmode=disable", server.url());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let (id, other) = (EventId::of_name("a"), event("1", "OrderPaid"));
    let created = event("1", "OrderCreated").with_id(id);
    let mut tx = connection.begin().await.unwrap();
    let published = it.outbox.publish_sqlx(&mut tx, &created).await.unwrap();
    assert_eq!(published, Published::New(id));
    tx.commit().await.unwrap();
    assert_eq!(it.types_of("1").await, ["OrderCreated"]);

    let mut tx = connection.begin().await.unwrap();
    let again = it.outbox.publish_sqlx(&mut tx, &created).await.unwrap();
    assert_eq!(again, Published::Before(id));
    let refused = it.outbox.publish_sqlx(&mut tx, &other).await.unwrap_err();
    assert!(matches!(refused, PublishError::NoId { .. }), "{refused}");
    let refused = it.outbox.publish_sqlx(&mut tx, &other.with_id(id)).await.unwrap_err();
    assert!(matches!(refused, PublishError::IdTaken { .. }), "{refused}");
    tx.rollback().await.unwrap();
}
