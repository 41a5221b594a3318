//! Kafka, alone and as a cluster, and Kafka Connect.

use std::thread;
use std::time::Duration;

use onceward_services::{
    Access, Connect, Kafka, KafkaRecord, Postgres, Server, Topic, kafka, kafka_cluster, or_skip,
    query,
};

use crate::support::{eventually, processes_in};

fn values(records: &[KafkaRecord]) -> Vec<&str> {
    records.iter().map(|record| &*record.value).collect()
}

#[test]
fn kafka_keeps_what_it_acknowledged_when_it_is_killed() {
    let Some(kafka) = kafka() else { return };
    let orders = Topic::create(&kafka.address(), "orders", 2, &[]).unwrap();
    assert_eq!(orders.append(1, "key", "first").unwrap(), 0);
    kafka.kill().unwrap();
    assert!(!kafka.is_running());
    assert_eq!(processes_in(kafka.directory()), 0);
    orders.append(1, "key", "lost").unwrap_err();
    kafka.start().unwrap();
    assert_eq!(orders.append(1, "key", "second").unwrap(), 1);
    kafka.restart().unwrap();
    assert_eq!(orders.append(0, "", "third").unwrap(), 0);
    let records = orders.records().unwrap();
    assert_eq!(values(&records), ["third", "first", "second"]);
    assert_eq!((&*records[2].key, records[2].partition, records[2].offset), ("key", 1, 1));
}

#[test]
fn a_kafka_has_its_properties_and_answers_when_it_is_resumed() {
    let settings = Kafka::default().property("message.max.bytes", "1000");
    let settings = settings.property("authorizer.class.name", Kafka::AUTHORIZER);
    let settings = settings.property("allow.everyone.if.no.acl.found", "true");
    let Some(kafka) = or_skip(settings.start()) else { return };
    assert_eq!(kafka.url(), format!("kafka://{}", kafka.address()));
    let small = Topic::create(&kafka.address(), "small", 1, &[]).unwrap();
    let large = Topic::create(&kafka.address(), "large", 1, &[("max.message.bytes", "2000")]);
    let (large, value) = (large.unwrap(), "x".repeat(1500));
    let refused = small.append(0, "", &value).unwrap_err().to_string();
    assert!(refused.ends_with("Kafka error 10"), "{refused}");
    large.append(0, "", &value).unwrap();
    large.deny(Access::Write).unwrap();
    let refused = || large.append(0, "", "").is_err_and(|it| it.to_string().ends_with("error 29"));
    assert!(eventually(refused));
    kafka.pause();
    assert!(kafka.is_running());
    thread::scope(|scope| {
        let reader = scope.spawn(|| large.records());
        thread::sleep(Duration::from_millis(300));
        assert!(!reader.is_finished());
        kafka.resume();
        assert_eq!(values(&reader.join().unwrap().unwrap())[0], value);
    });
}

#[test]
fn a_kafka_cluster_elects_another_leader_when_one_is_killed() {
    let Some(cluster) = kafka_cluster() else { return };
    let orders = Topic::create(&cluster.bootstrap(), "orders", 1, &[]).unwrap();
    orders.append(0, "", "first").unwrap();
    let leader = cluster.leader("orders", 0).unwrap();
    leader.kill().unwrap();
    // The others take a while to notice.
    let is_another = || cluster.leader("orders", 0).is_ok_and(|node| node.port() != leader.port());
    assert!(eventually(is_another));
    orders.append(0, "", "second").unwrap();
    cluster.start().unwrap();
    assert_eq!(values(&orders.records().unwrap()), ["first", "second"]);
}

#[test]
fn debezium_publishes_an_outbox_and_goes_on_after_a_kill() {
    let Some(postgres) = or_skip(Postgres::default().fsync(false).start()) else { return };
    let Some(kafka) = kafka() else { return };
    let failed = outbox(&postgres, &kafka).start().unwrap_err().to_string();
    assert!(failed.contains("its connector outbox failed"), "{failed}");
    assert!(failed.contains("No table filters found"), "{failed}");
    let columns = "aggregatetype text, aggregateid text, type text, payload text";
    query(&postgres, &format!("create table outbox (id text primary key, {columns})")).unwrap();
    let Some(connect) = or_skip(outbox(&postgres, &kafka).start()) else { return };
    let insert = |id: &str| {
        let row = format!("'{id}', 'orders', 'o-1', 'Placed', 'payload of {id}'");
        query(&postgres, &format!("insert into outbox values ({row}); delete from outbox")).unwrap()
    };
    let arrived = Topic::named(&kafka.address(), "orders.events");
    insert("a");
    assert!(eventually(|| arrived.records().is_ok_and(|records| records.len() == 1)));
    connect.kill().unwrap();
    assert_eq!(processes_in(connect.directory()), 0);
    insert("b");
    connect.start().unwrap();
    let has_b = |records: &[KafkaRecord]| values(records).contains(&"payload of b");
    assert!(eventually(|| arrived.records().is_ok_and(|records| has_b(&records))));
    let published = arrived.records().unwrap().len();
    connect.restart().unwrap();
    insert("c");
    assert!(eventually(|| arrived.records().is_ok_and(|records| records.len() > published)));
    assert_eq!(
        values(&arrived.records().unwrap())[published..],
        ["payload of c"],
        "and b not again"
    );
    let first = &arrived.records().unwrap()[0];
    assert_eq!((&*first.key, &*first.value), ("o-1", "payload of a"));
    assert!(first.headers.contains(&("id".to_owned(), "a".to_owned())), "{first:?}");
}

fn outbox(postgres: &Server, kafka: &Server) -> Connect {
    let configuration = [
        ("table.include.list", r"public\.outbox"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("transforms.outbox.route.topic.replacement", "${routedByValue}.events"),
    ];
    Connect::to(&kafka.address()).debezium("outbox", postgres, configuration)
}
