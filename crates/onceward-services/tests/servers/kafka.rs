//! Kafka, alone and as a cluster.

use std::thread;
use std::time::Duration;

use onceward_services::{Access, Kafka, KafkaRecord, Topic, kafka, kafka_cluster, or_skip};

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
