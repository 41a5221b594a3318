//! The lanes of this relay: leased, renewed, and shared with other relays.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::database::{Database, DatabaseError, FencedLane, Shares};
use crate::event::{LANES, Lane};

/// The lanes that this relay has, by its own monotonic clock.
#[derive(Debug)]
pub(super) struct Lanes {
    relay: Uuid,
    name: String,
    lease: Duration,
    own: BTreeMap<Lane, OwnLane>,
    renew_at: Instant,
}

#[derive(Debug, Clone, Copy)]
struct OwnLane {
    fence: i64,
    /// From then on the relay delivers nothing of the lane. Counted from before the lease was asked
    /// for, so it is never later than the lease's end.
    deadline: Instant,
    /// True if it is given up once nothing of it is in flight.
    leaving: bool,
}

/// The lanes that a renewal took or lost.
#[derive(Debug, Default)]
pub(super) struct LaneChange {
    pub(super) taken: Vec<Lane>,
    pub(super) lost: Vec<Lane>,
}

impl Lanes {
    pub(super) fn new(name: String, lease: Duration) -> Self {
        let relay = Uuid::from_u128(rand::random());
        Self { relay, name, lease, own: BTreeMap::new(), renew_at: Instant::now() }
    }

    /// The id of this relay.
    pub(super) fn relay(&self) -> Uuid {
        self.relay
    }

    /// When leases are renewed next, at a third of their length.
    pub(super) fn renew_at(&self) -> Instant {
        self.renew_at
    }

    /// The lanes whose lease has not ended.
    pub(super) fn live(&self, now: Instant) -> Vec<Lane> {
        let live = self.own.iter().filter(|(_, it)| now < it.deadline);
        live.map(|(lane, _)| *lane).collect()
    }

    /// The lane with its fence, if its lease has not ended.
    pub(super) fn fenced(&self, lane: Lane, now: Instant) -> Option<FencedLane> {
        let own = self.own.get(&lane).filter(|it| now < it.deadline)?;
        Some(FencedLane { lane, fence: own.fence })
    }

    /// True if new events of the lane may be delivered: it is neither lost nor being given up.
    pub(super) fn may_deliver(&self, lane: Lane, now: Instant) -> bool {
        self.own.get(&lane).is_some_and(|it| now < it.deadline && !it.leaving)
    }

    /// Renews all leases, takes free lanes up to this relay's share, and begins to give up those
    /// above it.
    pub(super) async fn renew(&mut self, database: &Database) -> Result<LaneChange, DatabaseError> {
        let mut change = LaneChange::default();
        let asked = Instant::now();
        self.renew_at = asked + self.lease / 3;
        let id = (self.relay, &*self.name, "table");
        let renewed = database.renew(id, &self.all(), self.lease).await?;
        let deadline = self.lease_end(asked);
        self.own.retain(|lane, own| {
            let kept = renewed.contains(lane);
            own.deadline = deadline.max(own.deadline);
            if !kept {
                change.lost.push(*lane);
            }
            kept
        });
        self.balance(database, &mut change).await?;
        Ok(change)
    }

    /// When a lease that was asked for at `asked` ends: an eighth earlier than the server's, so that
    /// a statement in flight reaches it in time.
    fn lease_end(&self, asked: Instant) -> Instant {
        asked + self.lease * 7 / 8
    }

    async fn balance(
        &mut self,
        database: &Database,
        change: &mut LaneChange,
    ) -> Result<(), DatabaseError> {
        let shares = database.shares(self.relay).await?;
        let share = share(shares);
        let staying = self.own.values().filter(|it| !it.leaving).count();
        for own in self.own.values_mut().rev().take(staying.saturating_sub(share)) {
            own.leaving = true;
        }
        if staying < share && shares.free > 0 {
            let asked = Instant::now();
            let taken = database.take(self.relay, share - staying, self.lease).await?;
            for FencedLane { lane, fence } in taken {
                let deadline = self.lease_end(asked);
                self.own.insert(lane, OwnLane { fence, deadline, leaving: false });
                change.taken.push(lane);
            }
        }
        Ok(())
    }

    /// Lanes that are being given up.
    pub(super) fn leaving(&self) -> Vec<Lane> {
        self.own.iter().filter(|(_, own)| own.leaving).map(|(lane, _)| *lane).collect()
    }

    /// Gives up lanes of which nothing is in flight.
    pub(super) async fn release(
        &mut self,
        database: &Database,
        lanes: &[Lane],
    ) -> Result<(), DatabaseError> {
        let mut released = self.all();
        released.retain(|it| lanes.contains(&it.lane));
        self.own.retain(|lane, _| !lanes.contains(lane));
        database.release(self.relay, &released).await
    }

    /// Begins to give up all lanes.
    pub(super) fn leave_all(&mut self) {
        self.own.values_mut().for_each(|own| own.leaving = true);
    }

    /// Forgets lanes whose lease has ended without being renewed. Returns them.
    pub(super) fn drop_ended(&mut self, now: Instant) -> Vec<Lane> {
        let mut ended = Vec::new();
        self.own.retain(|lane, own| {
            let live = now < own.deadline;
            if !live {
                ended.push(*lane);
            }
            live
        });
        ended
    }

    fn all(&self) -> Vec<FencedLane> {
        self.own.iter().map(|(lane, own)| FencedLane { lane: *lane, fence: own.fence }).collect()
    }
}

/// The number of lanes that this relay should have.
fn share(shares: Shares) -> usize {
    usize::from(LANES).div_ceil(shares.relays.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_all_lanes() {
        for relays in 0..=70 {
            let share = share(Shares { relays, free: 0, own: 0 });
            assert!(share >= 1 && share * relays.max(1) >= usize::from(LANES), "{relays}");
        }
    }
}
