//! `onceward store accept-loss`

use clap::Args;

use crate::admin::AcceptLoss;
use crate::cli::Fallible;
use crate::cli::confirm::confirm;
use crate::cli::output;
use crate::cli::target::Target;

#[derive(Debug, Args)]
pub(crate) struct AcceptLossArgs {
    /// Why known keys are not sent again, or may run again; for the trail, no secrets
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: Target,
}

impl AcceptLossArgs {
    pub(super) async fn execute(self) -> Fallible {
        let Self { reason, yes, place } = self;
        let what = format!(
            "Claims will be granted again: every key from before the loss is new, and runs again \
             if a client sends it again\nreason: {}",
            output::plain(&reason)
        );
        confirm(&what, yes)?;
        let done = place.admin().await?.accept_loss(&AcceptLoss { reason }).await?;
        if place.json {
            return output::json(&done);
        }
        output::line(match done.reopened {
            true => "the loss is accepted: claims are granted again",
            false => "nothing was lost: claims are granted as before",
        })
    }
}
