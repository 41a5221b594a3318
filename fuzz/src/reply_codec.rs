//! Target: stored replies.

use bytes::Bytes;
use onceward_http::testing::reply_round_trip;

pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x00\xc9\x01\x0ccontent-type\x10application/json\x00{\"id\":1}",
    b"\x00\xcc\x00\x00",
    b"\x00\xc8\x02\x04link\x03<a>\x04link\x03<b>\x01\x0bgrpc-status\x010body",
    b"\x01\x2f\x01\x08location\x09/orders/1\x00",
    // More headers announced than a header map can hold.
    b"\x01\x2f\xff\xff\x01",
];

pub(crate) const WORDS: &[&[u8]] = &[
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\x04etag\x01x",
    b"\r\n",
    b"\x00\xc8",
];

/// A reply that was read and written again reads as the same reply.
pub fn reply_codec(stored: &[u8]) {
    if let Some(written) = reply_round_trip(&Bytes::copy_from_slice(stored)) {
        let again = reply_round_trip(&written);
        assert_eq!(again.as_ref(), Some(&written));
    }
}
