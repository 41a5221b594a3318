//! Topics without a Kafka client: each call sends single requests.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::protocol::{
    Answer, Api, CREATE_ACLS, CREATE_TOPICS, FETCH, Message, Metadata, PRODUCE, Partition, ask,
    invalid, metadata,
};
use crate::wait;

/// Limit for the election of a leader.
const ELECTING: Duration = Duration::from_secs(20);
/// Limit for a request, at the broker.
const TIMEOUT_MS: i32 = 5_000;
const FETCH_BYTES_MAX: i32 = 4 << 20;
/// Errors of a broker that does not know or lead the partition, and has not applied the request. The
/// metadata of the brokers may differ for a moment.
const NOT_LEADER: [i16; 2] = [3, 6];
/// The format of batches since Kafka 0.11.
const MAGIC: i8 = 2;
const ATTRIBUTE_COMPRESSION: i16 = 0b111;
const ATTRIBUTE_CONTROL: i16 = 1 << 5;

/// Topic, for tests without a Kafka client.
///
/// ```no_run
/// # fn test() -> std::io::Result<()> {
/// # let Some(kafka) = onceward_services::kafka() else { return Ok(()) };
/// use onceward_services::Topic;
///
/// let orders = Topic::create(&kafka.address(), "orders", 3, &[("retention.ms", "-1")])?;
/// orders.append(0, "key", "value")?;
/// assert_eq!(orders.records()?[0].value, "value");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Topic {
    bootstrap: String,
    name: String,
}

/// Access of clients to a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read its records.
    Read,
    /// Append records.
    Write,
}

/// Record of a topic. Texts are lossy UTF-8, and empty for null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaRecord {
    /// Its partition.
    pub partition: i32,
    /// Its offset in the partition.
    pub offset: i64,
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its headers, in order.
    pub headers: Vec<(String, String)>,
}

impl Topic {
    /// Returns a topic of the brokers at `bootstrap`: `host:port`, separated by commas.
    pub fn named(bootstrap: &str, name: &str) -> Self {
        Self { bootstrap: bootstrap.to_owned(), name: name.to_owned() }
    }

    /// Creates a topic with as many replicas as `bootstrap` has addresses, and waits until each
    /// partition has a leader that answers.
    ///
    /// # Errors
    ///
    /// If the broker refuses, or does not answer in time.
    pub fn create(
        bootstrap: &str,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> io::Result<Self> {
        let topic = Self::named(bootstrap, name);
        let replicas = i16::try_from(bootstrap.split(',').count()).map_err(|_| invalid())?;
        let mut body = Message::default();
        body.i32(1).text(name).i32(partitions).i16(replicas);
        let assignments = 0;
        body.i32(assignments).i32(configs.len() as i32);
        for (name, value) in configs {
            body.text(name).text(value);
        }
        let validate_only = 0;
        body.i32(TIMEOUT_MS).i8(validate_only);
        topic.asked_first(|address| {
            let mut from = ask(address, CREATE_TOPICS, &body)?;
            let (_throttled_ms, _count, _name) = (from.i32()?, from.i32()?, from.text()?);
            let (error, message) = (from.i16()?, from.text()?);
            refused(error, &format!("creating {name}: {message}"))
        })?;
        (0..partitions).try_for_each(|partition| topic.fetch(partition, 0).map(drop))?;
        Ok(topic)
    }

    /// Appends a record with `acks=all` and returns its offset.
    ///
    /// # Errors
    ///
    /// If the broker refuses, which an error "Kafka error …" says, or does not answer in time. In the
    /// second case the record may have been appended; the call is not repeated.
    pub fn append(&self, partition: i32, key: &str, value: &str) -> io::Result<i64> {
        let mut body = Message::default();
        let (transactional_id, acks_of_all) = (-1, -1);
        body.i16(transactional_id).i16(acks_of_all).i32(TIMEOUT_MS);
        body.i32(1).text(&self.name).i32(1).i32(partition).bytes(&batch(key, value));
        self.ask_leader(partition, PRODUCE, &body, |from| {
            let (_topics, _name, _partitions) = (from.i32()?, from.text()?, from.i32()?);
            let _index = from.i32()?;
            Ok((from.i16()?, from.i64()?))
        })
    }

    /// Denies all clients an access. Soon afterwards they get error 29,
    /// `TOPIC_AUTHORIZATION_FAILED`. The broker needs these properties:
    ///
    /// ```
    /// # use onceward_services::Kafka;
    /// let kafka = Kafka::default()
    ///     .property("authorizer.class.name", Kafka::AUTHORIZER)
    ///     .property("allow.everyone.if.no.acl.found", "true");
    /// ```
    ///
    /// # Errors
    ///
    /// If the broker refuses, or does not answer in time.
    pub fn deny(&self, access: Access) -> io::Result<()> {
        let (resource_topic, literal, everything, deny, allow) = (2, 3, 2, 2, 3);
        let operation = match access {
            Access::Read => 3,
            Access::Write => 4,
        };
        let mut body = Message::default();
        body.i32(2);
        // If a topic has any rule, everything else has to be allowed.
        for (operation, permission) in [(everything, allow), (operation, deny)] {
            body.i8(resource_topic).text(&self.name).i8(literal);
            body.text("User:*").text("*").i8(operation).i8(permission);
        }
        self.asked_first(|address| {
            let mut from = ask(address, CREATE_ACLS, &body)?;
            let _throttled_ms = from.i32()?;
            let results = from.array(|from| Ok((from.i16()?, from.text()?)))?;
            let mut refusals = results.iter().map(|(error, why)| refused(*error, why));
            refusals.find(Result::is_err).unwrap_or(Ok(()))
        })
    }

    /// Returns all records in the order of partitions, including those of open and aborted
    /// transactions.
    ///
    /// # Errors
    ///
    /// If the topic does not exist, its first records were deleted by retention, a record is
    /// compressed, or the broker does not answer in time.
    pub fn records(&self) -> io::Result<Vec<KafkaRecord>> {
        let mut partitions = self.partitions()?;
        partitions.sort_by_key(|partition| partition.index);
        let all = partitions.iter().map(|partition| self.records_of(partition.index));
        Ok(all.collect::<io::Result<Vec<_>>>()?.concat())
    }

    /// Waits until a partition has a leader, and returns its address.
    pub(super) fn leader(&self, partition: i32) -> io::Result<String> {
        let of_known = |metadata: Metadata| {
            let partitions = metadata.topics.get(&self.name)?;
            let leader = partitions.iter().find(|it| it.index == partition)?.leader;
            metadata.brokers.get(&leader).cloned()
        };
        let look = || self.metadata().map(of_known).transpose();
        let none = || io::Error::other(format!("{} {partition} has no leader", self.name));
        wait::until(ELECTING, look).unwrap_or_else(|| Err(none()))
    }

    fn records_of(&self, partition: i32) -> io::Result<Vec<KafkaRecord>> {
        let (mut records, mut next) = (Vec::new(), 0);
        loop {
            let (end, batches) = self.fetch(partition, next)?;
            let mut from = Answer::of(&batches);
            while let Some(batch) = Batch::next(&mut from)? {
                next = batch.next_offset;
                records.extend(batch.records(partition)?);
            }
            if next >= end {
                return Ok(records);
            }
        }
    }

    /// Returns the partition's end, and batches from an offset on.
    fn fetch(&self, partition: i32, offset: i64) -> io::Result<(i64, Vec<u8>)> {
        let mut body = Message::default();
        let (client, wait_ms, bytes_min, uncommitted_too) = (-1, 0, 1, 0);
        body.i32(client).i32(wait_ms).i32(bytes_min).i32(FETCH_BYTES_MAX).i8(uncommitted_too);
        body.i32(1).text(&self.name);
        body.i32(1).i32(partition).i64(offset).i32(FETCH_BYTES_MAX);
        self.ask_leader(partition, FETCH, &body, |from| {
            let (_throttled_ms, _topics, _name) = (from.i32()?, from.i32()?, from.text()?);
            let (_partitions, _index, error) = (from.i32()?, from.i32()?, from.i16()?);
            let (end, _stable_end) = (from.i64()?, from.i64()?);
            let _aborted = from.array(|from| Ok((from.i64()?, from.i64()?)))?;
            Ok((error, (end, from.bytes()?.to_vec())))
        })
    }

    /// Sends a request to the leader of a partition, again if the broker does not lead it. `read`
    /// returns Kafka's error and the answer.
    fn ask_leader<T>(
        &self,
        partition: i32,
        api: Api,
        body: &Message,
        read: impl Fn(&mut Answer) -> io::Result<(i16, T)>,
    ) -> io::Result<T> {
        let ask = || read(&mut ask(&self.leader(partition)?, api, body)?);
        let answered = wait::until(ELECTING, || match ask() {
            Ok((error, _)) if NOT_LEADER.contains(&error) => None,
            answered => Some(answered),
        });
        let (error, answer) = answered.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))?;
        refused(error, &format!("{} {partition}", self.name)).map(|()| answer)
    }

    fn partitions(&self) -> io::Result<Vec<Partition>> {
        let partitions = self.metadata()?.topics.remove(&self.name).unwrap_or_default();
        let none = || io::Error::new(io::ErrorKind::NotFound, self.name.clone());
        if partitions.is_empty() { Err(none()) } else { Ok(partitions) }
    }

    fn metadata(&self) -> io::Result<Metadata> {
        self.asked_first(|address| metadata(address, &[&self.name]))
    }

    /// Returns the answer of the first broker that answers.
    fn asked_first<T>(&self, question: impl Fn(&str) -> io::Result<T>) -> io::Result<T> {
        let mut answer = Err(io::ErrorKind::NotConnected.into());
        for address in self.bootstrap.split(',') {
            answer = question(address);
            if !answer.as_ref().is_err_and(is_unreachable) {
                break;
            }
        }
        answer
    }
}

/// True if the broker may be down, so that the next one is tried.
fn is_unreachable(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::Other
}

fn refused(error: i16, doing: &str) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::other(format!("{doing}: Kafka error {error}"))) }
}

/// Encodes a batch of one record.
fn batch(key: &str, value: &str) -> Vec<u8> {
    let mut record = Message::default();
    record.i8(0).varint(0).varint(0);
    for bytes in [key.as_bytes(), value.as_bytes()] {
        record.varint(bytes.len() as i64).raw(bytes);
    }
    let headers = 0;
    record.varint(headers);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let (producer_id, producer_epoch, sequence) = (-1, -1, -1);
    let mut body = Message::default();
    body.i16(0).i32(0).i64(now).i64(now).i64(producer_id).i16(producer_epoch).i32(sequence);
    body.i32(1).varint(record.0.len() as i64).raw(&record.0);
    let mut rest = Message::default();
    let leader_epoch = -1;
    rest.i32(leader_epoch).i8(MAGIC).raw(&crc32c(&body.0).to_be_bytes()).raw(&body.0);
    let mut batch = Message::default();
    batch.i64(0).bytes(&rest.0);
    batch.0
}

/// Batch of an answer.
struct Batch {
    first_offset: i64,
    next_offset: i64,
    attributes: i16,
    count: i32,
    rest: Answer,
}

impl Batch {
    /// Returns the next complete batch. The last one of an answer may be truncated.
    fn next(from: &mut Answer) -> io::Result<Option<Self>> {
        if from.is_empty() {
            return Ok(None);
        }
        let first_offset = from.i64();
        match (first_offset, from.bytes()) {
            (Ok(first_offset), Ok(rest)) => Self::begin(first_offset, Answer::of(rest)).map(Some),
            (Err(_), _) | (_, Err(_)) => Ok(None),
        }
    }

    fn begin(first_offset: i64, mut rest: Answer) -> io::Result<Self> {
        let (_leader_epoch, magic, _crc) = (rest.i32()?, rest.i8()?, rest.i32()?);
        if magic != MAGIC {
            return Err(invalid());
        }
        let (attributes, last) = (rest.i16()?, rest.i32()?);
        let (_first_time, _last_time) = (rest.i64()?, rest.i64()?);
        let (_producer_id, _epoch, _sequence) = (rest.i64()?, rest.i16()?, rest.i32()?);
        let next_offset = first_offset + i64::from(last) + 1;
        Ok(Self { first_offset, next_offset, attributes, count: rest.i32()?, rest })
    }

    fn records(mut self, partition: i32) -> io::Result<Vec<KafkaRecord>> {
        if self.attributes & ATTRIBUTE_CONTROL != 0 {
            return Ok(Vec::new());
        }
        if self.attributes & ATTRIBUTE_COMPRESSION != 0 {
            return Err(io::Error::other("compressed batches are not supported"));
        }
        (0..self.count).map(|_| self.record(partition)).collect()
    }

    fn record(&mut self, partition: i32) -> io::Result<KafkaRecord> {
        let from = &mut self.rest;
        let (_size, _attributes, _time) = (from.varint()?, from.i8()?, from.varint()?);
        let offset = self.first_offset + from.varint()?;
        let (key, value) = (text(from)?, text(from)?);
        let headers = (0..from.varint()?).map(|_| Ok((text(from)?, text(from)?)));
        let headers = headers.collect::<io::Result<_>>()?;
        Ok(KafkaRecord { partition, offset, key, value, headers })
    }
}

/// Text of a record, after its length in variable length.
fn text(from: &mut Answer) -> io::Result<String> {
    let size = from.varint()?.max(0);
    Ok(String::from_utf8_lossy(from.raw(size as usize)?).into_owned())
}

/// The checksum of batches.
fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
        })
    };
    !bytes.iter().fold(!0, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_batch_is_read_as_it_was_written_and_half_of_one_not_at_all() {
        let written = batch("k", "value");
        let mut from = Answer::of(&written);
        let batch = Batch::next(&mut from).unwrap().unwrap();
        assert_eq!(batch.next_offset, 1);
        let [record] = &batch.records(7).unwrap()[..] else { panic!("one record") };
        assert_eq!((&*record.key, &*record.value, record.partition), ("k", "value", 7));
        assert!(Batch::next(&mut from).unwrap().is_none());
        assert!(Batch::next(&mut Answer::of(&written[..40])).unwrap().is_none());
    }
}
