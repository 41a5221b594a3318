//! A request's fields as they were sent, for recognising an exact repetition.

/// Fields of a request, each with its length, so that no two lists of fields give the same bytes.
pub(crate) struct RawFields(Vec<u8>);

impl RawFields {
    /// An empty list, with room for a request with this body.
    pub(crate) fn with_room_for(body: &[u8]) -> Self {
        Self(Vec::with_capacity(384 + body.len()))
    }

    pub(crate) fn push(&mut self, field: &[u8]) {
        self.0.extend_from_slice(&(field.len() as u64).to_le_bytes());
        self.0.extend_from_slice(field);
    }

    pub(crate) fn push_list<'l>(&mut self, list: impl Iterator<Item = &'l [u8]>) {
        for field in list {
            self.0.push(1);
            self.push(field);
        }
        self.0.push(0);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
