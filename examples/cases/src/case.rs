//! A case and its life cycle, the same in every store.

use serde::{Deserialize, Serialize};

/// One case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: i64,
    pub(crate) title: String,
    pub(crate) status: Status,
    /// Counts the changes. A request to change the case says which version its sender has seen.
    pub(crate) version: i64,
}

/// Where a case stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// Not submitted yet.
    Draft,
    /// It waits for a decision.
    Submitted,
    /// Can be paid.
    Approved,
    /// It was decided against. The end.
    Rejected,
    /// Paid. This is final.
    Paid,
}

/// A change of a case's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// A draft becomes submitted.
    Submit,
    /// A submitted case becomes approved.
    Approve,
    /// A submitted case becomes rejected.
    Reject,
    /// An approved case becomes paid.
    Pay,
}

/// A refusal for reasons of the business. The client decides anew, and that takes a new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    status: Status,
    version: i64,
}

impl Status {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Draft, "draft"),
        (Self::Submitted, "submitted"),
        (Self::Approved, "approved"),
        (Self::Rejected, "rejected"),
        (Self::Paid, "paid"),
    ];

    /// The name of the status in the database.
    pub(crate) fn as_str(self) -> &'static str {
        let (_, name) = Self::ALL[self as usize];
        name
    }

    /// The status of a name in the database.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(status, _)| *status)
    }

    /// The status after a step; `None` where it cannot be taken.
    fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Draft, Step::Submit) => Some(Self::Submitted),
            (Self::Submitted, Step::Approve) => Some(Self::Approved),
            (Self::Submitted, Step::Reject) => Some(Self::Rejected),
            (Self::Approved, Step::Pay) => Some(Self::Paid),
            (Self::Draft | Self::Submitted | Self::Approved | Self::Rejected | Self::Paid, _) => {
                None
            }
        }
    }
}

impl Case {
    /// A new case.
    pub(crate) fn draft(id: i64, title: String) -> Self {
        Self { id, title, status: Status::Draft, version: 1 }
    }

    /// Takes a step, if the sender has seen the current version. Without an expected version, only
    /// the status decides.
    pub(crate) fn take(
        &mut self,
        step: Step,
        expected_version: Option<i64>,
    ) -> Result<(), Refusal> {
        if expected_version.is_some_and(|expected| expected != self.version) {
            return Err(self.refusal("STALE_VERSION"));
        }
        let next = self.status.after(step).ok_or_else(|| self.refusal("NOT_IN_THIS_STATE"))?;
        (self.status, self.version) = (next, self.version + 1);
        Ok(())
    }

    fn refusal(&self, code: &'static str) -> Refusal {
        Refusal { code, status: self.status, version: self.version }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_name_in_the_database() {
        for (status, name) in Status::ALL {
            assert_eq!((status.as_str(), Status::named(name)), (name, Some(status)));
        }
        assert_eq!(Status::named("lost"), None);
    }
}
